"""Documents that are like another, ``"like": "llama"``: merged before they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

LIKE: Final = "like"
WITHOUT: Final = "without"
NOT_INHERITED: Final = ("head_classes", "gguf", "runtimes")
"""Entries that say nothing of another family: its classes, and what supports it."""
BY_ROLE: Final = ("body", "head")
"""Lists of tensors, in which one takes the place of that of the same role."""


def whole(name: str, documents: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the document of a family with all that it has of those that it is like.

    ``documents`` holds all by name, in any order. ``ValueError`` names one that is not there, and families
    that are like each other.
    """
    chain = [name]
    while (other := documents[chain[-1]].get(LIKE)) is not None:
        if not isinstance(other, str) or other not in documents:
            raise ValueError(f"family {chain[-1]!r} is like {str(other)[:60]!r}, which is not known")
        if other in chain:
            circle = [*chain[chain.index(other) :], other]
            raise ValueError(f"families are like each other: {' like '.join(circle)}")
        chain.append(other)
    result = dict(documents[chain.pop()])
    while chain:
        result = merged(result, documents[chain.pop()])
    return result


def merged(base: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with the entries that it lacks from ``base``.

    Objects are merged entry by entry; values and lists replace. Tensors of ``tensors.body`` or ``head``
    take the place of those with their role, in the layers or outside them; roles in ``tensors.without`` are
    left out before. ``ValueError`` for roles that are not there.
    """
    taken = {name: value for name, value in base.items() if name not in NOT_INHERITED}
    changes = {name: value for name, value in document.items() if name not in (LIKE, "tensors")}
    result = _merged(taken, changes)
    tensors = document.get("tensors", {})
    if isinstance(tensors, Mapping) and isinstance(base.get("tensors"), Mapping):
        result["tensors"] = _tensors(base["tensors"], tensors)
    elif "tensors" in document:
        result["tensors"] = tensors
    return result


def _merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    result = {**base, **change}
    for name in base.keys() & change.keys():
        if isinstance(base[name], Mapping) and isinstance(change[name], Mapping):
            result[name] = _merged(base[name], change[name])
    return result


def _tensors(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tensors of a document of which some differ from ``base``."""
    without = change.get(WITHOUT, [])
    if not isinstance(without, list):
        raise ValueError(f"tensors.without is {str(without)[:60]!r}, not a list")
    rest = {name: value for name, value in change.items() if name not in (*BY_ROLE, WITHOUT)}
    result = _merged(base, rest)
    roles = [pattern.get("role") for part in BY_ROLE for pattern in _patterns(base, part)]
    for role in without:
        if role not in roles:
            raise ValueError(f"tensors.without names the role {str(role)[:60]!r}, which no tensor has")
    for part in BY_ROLE:
        kept = [pattern for pattern in _patterns(base, part) if pattern.get("role") not in without]
        changed: dict[object, list[Mapping[str, Any]]] = {}
        for pattern in _patterns(change, part):
            changed.setdefault(_place(pattern), []).append(pattern)
        replaced = {_place(pattern) for pattern in kept} & changed.keys()
        result[part] = []
        for pattern in kept:
            place = _place(pattern)
            result[part] += changed.pop(place, [] if place in replaced else [pattern])
        result[part] += [pattern for patterns in changed.values() for pattern in patterns]
    return result


def _patterns(tensors: Mapping[str, Any], part: str) -> list[Mapping[str, Any]]:
    patterns = tensors.get(part, [])
    if not isinstance(patterns, list) or not all(isinstance(pattern, Mapping) for pattern in patterns):
        raise ValueError(f"tensors.{part} is no list of objects")
    return patterns


def _place(pattern: Mapping[str, Any]) -> tuple[bool, str]:
    """Return the place of a tensor: whether it is in a layer, and its role. Only kinds of layers share
    one."""
    return "{layer}" in str(pattern.get("name")), str(pattern.get("role"))
