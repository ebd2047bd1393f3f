"""zerolm: choose and shrink transformer language models without training them.

The public functions are imported when they are first used, so that ``import zerolm`` stays light. What type
checkers read of them is in ``__init__.pyi``.
"""

from __future__ import annotations

from importlib import import_module
from os import environ as _environ

# Threads that spin while they wait slow one another down on shared processors. torch reads it when imported.
_environ.setdefault("OMP_WAIT_POLICY", "passive")

__version__ = "0.1.0"

_HELPERS = {
    "load": "zerolm.verbs.report",
    "make_score": "zerolm.scores",
    "make_space": "zerolm.spaces",
    "read_labels": "zerolm.groundtruth.labels",
}


def __getattr__(name: str):  # type: ignore[no-untyped-def]  # typing is not imported
    if name in _HELPERS:
        return getattr(import_module(_HELPERS[name]), name)
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module 'zerolm' has no attribute {name!r}")
    from zerolm.verbs import call

    if name == "__all__":
        return ["__version__", *_HELPERS, *call.public_names()]
    return call.public(name)


def __dir__() -> list[str]:
    return sorted(__getattr__("__all__"))
