"""Conformance suites for authors of plug-ins; torch is imported by that of proxies alone."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

HOMES: Final = {"check_proxy": "zerolm.testing.proxies", "ProxyConformance": "zerolm.testing.proxies"}

__all__ = ["ProxyConformance", "check_proxy"]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)
