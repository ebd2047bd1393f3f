"""The laboratory: proxies of running networks, supernets, sub-networks and ablations, for researchers.

The laboratory is a plug-in that comes with zerolm: it registers its commands, spaces and spaces of sizes by
entry points, and nothing outside imports it. Its functions are named like its commands:
``zerolm.lab.proxies(...)`` is ``zerolm lab proxies``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def __getattr__(name: str) -> Any:
    from zerolm.verbs.call import public

    functions = vars(public("lab"))
    if name not in functions:
        raise AttributeError(f"module 'zerolm.lab' has no attribute {name!r}")
    return functions[name]
