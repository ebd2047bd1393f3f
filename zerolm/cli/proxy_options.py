"""Options that ``zerolm proxies`` and ``zerolm bench run`` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Chosen = Annotated[
    str | None, typer.Option("--proxies", metavar="A,B,C", help="Some of `zerolm proxies ls`; else all.")
]
Store = Annotated[
    Path | None, typer.Option(metavar="FILE", help="SQLite file of what is computed; else in the cache.")
]
Data = Annotated[
    str | None, typer.Option(help="Folder of benchmark files; else ZEROLM_DATA, else the cache.")
]
Metric = Annotated[
    str | None, typer.Option(help="A result of the file; else the file's own, or its only one.")
]


def listed(names: str) -> list[str]:
    """Return what stands between commas."""
    return [name for name in map(str.strip, names.split(",")) if name]
