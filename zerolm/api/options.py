"""Options of scores of which several values are asked for, as ``score`` and ``bench`` take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerolm.scores import SCORES
from zerolm.settings import Setting, nearest, shown
from zerolm.settings.units import parse_integers


def score_options(given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values of the options given, by name; ``ValueError`` for an unknown or a wrong one."""
    known = {setting.name: setting for entry in reversed(SCORES.entries()) for setting in entry.options}
    options = {}
    for name, values in given.items():
        if values is None or (isinstance(values, list | tuple) and not values):
            continue
        if name not in known:
            raise ValueError(f"no score has an option {shown(name)}{nearest(name, known)}")
        options[name] = [known[name].parse(value) for value in _several(known[name], values)]
    return options


def _several(setting: Setting, values: Any) -> list[Any]:
    """Return a list of values; that of integers may be written as a range."""
    if setting.kind == "integer":
        return parse_integers(setting.name, values)
    return list(values) if isinstance(values, list | tuple) else [values]
