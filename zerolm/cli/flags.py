"""Flags of declared settings: one option of a command for each, whatever declares it."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from zerolm.registry import Entry, PluginWarning
from zerolm.settings import Setting


def declared(entries: Iterable[Entry[Any]], taken: Collection[str]) -> list[Setting]:
    """Return the settings of spaces or scores, each name once, its help saying whose it is.

    Names that are ``taken`` by the command itself cannot be given: a ``PluginWarning`` says so.
    """
    first, owners = dict[str, Setting](), dict[str, list[str]]()
    for entry in entries:
        for setting in entry.options:
            if setting.name in taken:
                said = f"setting {setting.name!r} of {entry.name!r} cannot be given: it is the command's own"
                warnings.warn(said, PluginWarning, stacklevel=2)
                continue
            first.setdefault(setting.name, setting)
            owners.setdefault(setting.name, []).append(entry.name)
    return [replace(s, help=f"{s.help} ({', '.join(owners[s.name])})") for s in first.values()]
