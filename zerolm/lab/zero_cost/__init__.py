"""Proxies: training-free scores of networks that run, computed together from a handful of passes (torch)."""

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zerolm.lab.zero_cost.registry import LeftOut, Proxy, find_proxy, proxy, proxy_names

__all__ = ["LeftOut", "Proxy", "find_proxy", "proxy", "proxy_names"]


def defined_names() -> list[str]:
    """Return the names that the modules of ``definitions`` register, from their text: for the Tab key."""
    files = sorted((Path(__file__).parent / "definitions").glob("*.py"))
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    return re.findall(r'^@proxy\(\s*"([a-z0-9_]+)"', text, re.MULTILINE)


def __getattr__(name: str) -> Any:
    """Import torch when a proxy is asked for: results are read without it."""
    if name not in __all__:
        raise AttributeError(f"module 'zerolm.lab.zero_cost' has no attribute {name!r}")
    import_module("zerolm.lab.zero_cost.definitions")
    return getattr(import_module("zerolm.lab.zero_cost.registry"), name)
