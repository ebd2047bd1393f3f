"""Options that ``zerolm proxies`` and ``zerolm bench run`` share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

Chosen = Annotated[
    str | None, typer.Option("--proxies", metavar="A,B,C", help="Some of `zerolm proxies ls`; else all.")
]
Store = Annotated[
    Path | None, typer.Option(metavar="FILE", help="SQLite file of what is computed; else in the cache.")
]


def listed(names: str) -> list[str]:
    """Return what stands between commas."""
    return [name for name in map(str.strip, names.split(",")) if name]


@contextmanager
def needing_torch() -> Iterator[None]:
    """Within, what an import lacks is said by the extra that brings it."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name is None:  # said already
            raise
        message = f"proxies run networks, which needs {missing.name}: pip install 'zerolm[torch]'"
        raise ModuleNotFoundError(message) from missing
