"""Models of a type that no document describes, read as if they were of another: ``--like llama``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from zerolm.families.family import Family

HEADS: Final = ("ForCausalLM", "LMHeadModel", "ForMaskedLM")
"""Ends of the names of classes that have a head for the task."""
HIDDEN_NOTE: Final = "nothing says that the norms of a model that is read like another are plain"
_LIKE: list[str | None] = [None]
"""The families that others are read like at present, the last of them now."""


@contextmanager
def others_like(name: str | None) -> Iterator[None]:
    """Within, models of types that are not known are read like this family; as ever without a name."""
    _LIKE.append(current() if name is None else name)
    try:
        yield
    finally:
        _LIKE.pop()


def current() -> str | None:
    """Return the family that unknown ones are read like, None where they are refused."""
    return _LIKE[-1]


def alike(family: Family, kind: str, config: Mapping[str, Any]) -> Family:
    """Return a family of the type ``kind`` that is read and cut like another.

    Support for the other says nothing of it, and whether its norms are plain is not known, so its stream
    stays as wide as it is. It keeps its type, so heads that do not divide the hidden size are refused unless
    the other takes them as they are.
    """
    classes = config.get("architectures")
    listed = classes if isinstance(classes, list) else []
    names = tuple(name for name in listed if isinstance(name, str) and name.endswith(HEADS))
    indivisible = "kept" if family.cut.indivisible == "kept" else "refused"
    cut = replace(family.cut, hidden=False, hidden_note=HIDDEN_NOTE, indivisible=indivisible, written_as=None)
    return replace(family, name=kind, head_classes=names, cut=cut, gguf=None, runtimes={})
