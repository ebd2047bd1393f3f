"""Options of scores of which several values may be given, as ``score`` and ``bench run`` take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerolm.scores.base import SCORES
from zerolm.settings import Setting, nearest, shown
from zerolm.settings.units import parse_integers


def score_options(further: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values of options of scores, by name; ``ValueError`` for an unknown or a wrong one."""
    declared = {setting.name: setting for entry in reversed(SCORES.entries()) for setting in entry.options}
    options = {}
    for name, values in further.items():
        if values is None or (isinstance(values, list | tuple) and not values):
            continue
        if name not in declared:
            raise ValueError(f"no score has an option {shown(name)}{nearest(name, declared)}")
        options[name] = [declared[name].parse(value) for value in _listed(declared[name], values)]
    return options


def _listed(setting: Setting, values: Any) -> list[Any]:
    """Return a list of values; integers may be written as a range."""
    if setting.kind == "integer":
        return parse_integers(setting.name, values)
    return list(values) if isinstance(values, list | tuple) else [values]
