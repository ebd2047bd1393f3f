"""Names of tensors behind those of modules that a training script has put around a model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from zerolm.checkpoints.headers import Shard
from zerolm.families.family import Family

WRAPPERS: Final = ("module.", "_orig_mod.", "model.")
"""The attributes that hold the model in DataParallel, in what torch compiles, and in most other wrappers."""


def wrapper_of(family: Family, names: Collection[str]) -> str:
    """The prefix of wrappers before the names of all tensors; empty where a family knows the names.

    It is also empty where they are not those of the family behind any wrappers.
    """
    first, wrapper = family.tensors.body[0].name, ""
    bodies = {prefix.body + first for prefix in family.tensors.prefixes}
    while names and not any(wrapper + name in names for name in bodies):
        inner = (each for each in WRAPPERS if all(name.startswith(wrapper + each) for name in names))
        outer = next(inner, "")
        if not outer:
            return ""
        wrapper += outer
    return wrapper


def without_wrapper(shards: Sequence[Shard], wrapper: str) -> tuple[Shard, ...]:
    """Return the shards with the names of tensors behind those of a wrapper."""
    if not wrapper:
        return tuple(shards)
    return tuple(
        replace(
            shard,
            wrapper=wrapper,
            tensors={
                name.removeprefix(wrapper): replace(tensor, name=name.removeprefix(wrapper))
                for name, tensor in shard.tensors.items()
            },
        )
        for shard in shards
    )


def wrapper_note(wrapper: str) -> str:
    """Return that a wrapper is removed from the names; empty where there is none."""
    return wrapper and (
        f"the names of all tensors begin with {wrapper!r}, left by a wrapper: stock software does not "
        "remove it, zerolm does"
    )
