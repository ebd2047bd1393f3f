"""Commands of plug-ins: entry points of the group ``zerolm.verbs``.

The name of an entry point is the first word of its commands, and its object a mapping of their other words to
``Verb``s: ``lab = "zerolm.lab.verbs:VERBS"`` with ``"elastic train"`` is ``zerolm lab elastic train``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zerolm.registry import Entry, Registry
from zerolm.verbs import Verb


def _receive(registry: Registry[Verb], name: str, verbs: Mapping[str, Verb]) -> None:
    for words, verb in verbs.items():
        registry.add(Entry(f"{name} {words}", verb))


PLUGINS: Final = Registry[Verb]("command", "zerolm.verbs", _receive)


def plugin_verbs() -> dict[str, Verb]:
    return {entry.name: entry.value for entry in PLUGINS.entries()}
