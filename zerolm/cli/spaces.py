"""``zerolm spaces``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from zerolm.spaces import make_space, space_names


def spaces(json_output: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False) -> None:
    """List the search spaces with their exact size."""
    found = [make_space(name) for name in space_names()]
    if json_output:
        rows = [
            {"name": s.name, "size": s.size(), "summary": s.summary, "settings": s.settings} for s in found
        ]
        print(json.dumps(rows))
        return
    width = max(len(f"{space.size():,}") for space in found)
    for space in found:
        print(f"{space.name:<15} {space.size():>{width},}  {space.summary}")
