"""Conformance suites for authors of plug-ins; that of families needs torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from zerolm.testing.families import check_family
    from zerolm.testing.scores import check_score
    from zerolm.testing.spaces import check_space

HOMES: Final = {
    "check_family": "zerolm.testing.families",
    "check_score": "zerolm.testing.scores",
    "check_space": "zerolm.testing.spaces",
}

__all__ = ["check_family", "check_score", "check_space"]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)
