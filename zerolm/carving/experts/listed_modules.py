"""The modules that a ``quantization_config`` lists by name, for a child with renumbered experts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from zerolm.architecture import Ints

FIELD: Final = "quantization_config"
EXPERT: Final = re.compile(r"(.*\blayers\.(\d+)\..*\bexperts\.)(\d+)(\b.*)")
"""The name of a module of one expert, or a prefix of it: before, layer, expert, behind."""
PATTERN: Final = "re:"
NUMBERED: Final = re.compile(r"experts\\?\.[\[(]?\d")
"""A regular expression that selects experts by their numbers."""


def renumbered(config: Mapping[str, Any], by_layer: Mapping[int, Ints]) -> dict[str, Any]:
    """Return a configuration whose listed modules are those of the kept experts, by their new numbers.

    Raises ``ValueError`` for a regular expression that selects experts by their numbers.
    """
    changed = dict(config)
    for name, value in config.items():
        if name == FIELD:
            changed[name] = _listed(value, by_layer)
        elif isinstance(value, Mapping):
            changed[name] = renumbered(value, by_layer)
    return changed


def _listed(value: Any, by_layer: Mapping[int, Ints]) -> Any:
    """Return a value of the field with all lists of names in it renumbered."""
    if isinstance(value, Mapping):
        return {name: _listed(each, by_layer) for name, each in value.items()}
    if not isinstance(value, list):
        return value
    names = (_named(each, by_layer) if isinstance(each, str) else _listed(each, by_layer) for each in value)
    return [name for name in names if name is not None]


def _named(name: str, by_layer: Mapping[int, Ints]) -> str | None:
    """Return a name with the new number of its expert; None for a removed expert."""
    if name.startswith(PATTERN):
        if NUMBERED.search(name):
            raise ValueError(
                f"its {FIELD} names experts by the pattern {name[:80]!r}, which is not renumbered"
            )
        return name
    match = EXPERT.fullmatch(name)
    if match is None or int(match[2]) not in by_layer:
        return name
    kept, expert = by_layer[int(match[2])].tolist(), int(match[3])
    return f"{match[1]}{kept.index(expert)}{match[4]}" if expert in kept else None
