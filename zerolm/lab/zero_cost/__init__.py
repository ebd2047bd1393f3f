"""Proxies: training-free scores of networks that run, computed together from a handful of passes (torch)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zerolm.lab.zero_cost.registry import LeftOut, Proxy, find_proxy, proxy, proxy_names

__all__ = ["LeftOut", "Proxy", "find_proxy", "proxy", "proxy_names"]


def __getattr__(name: str) -> Any:
    """Import torch when a proxy is asked for: results are read without it."""
    if name not in __all__:
        raise AttributeError(f"module 'zerolm.lab.zero_cost' has no attribute {name!r}")
    import_module("zerolm.lab.zero_cost.definitions")
    return getattr(import_module("zerolm.lab.zero_cost.registry"), name)
