"""The rooms of the package and what they import, read from the modules; ``docs/figures.py`` draws them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1] / "zerolm"


@cache
def imports() -> dict[str, frozenset[str]]:
    """Return the rooms that each room imports, wherever in its modules."""
    rooms: dict[str, set[str]] = {}
    for file in sorted(ROOT.rglob("*.py")):
        room = file.relative_to(ROOT).with_suffix("").parts[0]
        if room.startswith("__"):
            continue
        targets = rooms.setdefault(room, set())
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("zerolm."):
                targets.add(node.module.split(".")[1])
            elif isinstance(node, ast.ImportFrom) and node.module == "zerolm":
                targets |= {alias.name for alias in node.names if (ROOT / alias.name).is_dir()}
    return {room: frozenset(targets & rooms.keys() - {room}) for room, targets in rooms.items()}


@cache
def above(room: str) -> frozenset[str]:
    """Return the rooms that a room imports, directly or by others."""
    return imports()[room].union(*(above(target) for target in imports()[room]))


def direct(room: str) -> frozenset[str]:
    """Return the imports of a room that none of its other imports brings with it."""
    targets = imports()[room]
    return frozenset(target for target in targets if not any(target in above(other) for other in targets))


@cache
def level(room: str) -> int:
    """Return the number of rooms on the longest way from a room that imports nothing."""
    return max((1 + level(target) for target in imports()[room]), default=0)
