"""Settings of spaces and scores as flags of a command."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from zerolm.registry import Entry, PluginWarning
from zerolm.scores import SCORES
from zerolm.settings import Setting
from zerolm.settings.request import Request
from zerolm.spaces import SPACES

TITLES = {"spaces": "Settings of spaces", "scores": "Options of scores"}


def further_settings(request: type[Request], typed: Sequence[str]) -> dict[str, tuple[Setting, ...]]:
    """Return the settings of the owners by heading, those of one owner where help is asked of it."""
    taken = {setting.name for setting in (*request.settings(), *request.output())}
    is_help = bool({"-h", "--help"} & set(typed))
    groups: dict[str, tuple[Setting, ...]] = {}
    for kind in request.owners:
        entries: list[Entry[Any]] = [*(SPACES.entries() if kind == "spaces" else SCORES.entries())]
        if is_help:
            titled = {f"Settings of {entry.name}": entry.options for entry in entries if entry.name in typed}
        else:
            titled = {TITLES[kind]: tuple(declared(entries, taken, request.shares))}
        for title, settings in titled.items():
            groups[title] = tuple(s for s in settings if s.name not in taken)
            taken |= {setting.name for setting in settings}
    return groups


def declared(
    entries: Iterable[Entry[Any]], taken: Collection[str], shared: Collection[str] = ()
) -> list[Setting]:
    """Return the settings of spaces or scores, each name once, its help saying whose it is.

    Names that are ``taken`` by the command itself cannot be given: a ``PluginWarning`` says so, but of those
    that are ``shared`` with it.
    """
    first, owners = dict[str, Setting](), dict[str, list[str]]()
    for entry in entries:
        for setting in entry.options:
            if setting.name in shared:
                continue
            if setting.name in taken:
                message = (
                    f"setting {setting.name!r} of {entry.name!r} cannot be given: it is the command's own"
                )
                warnings.warn(message, PluginWarning, stacklevel=2)
                continue
            first.setdefault(setting.name, setting)
            owners.setdefault(setting.name, []).append(entry.name)
    return [replace(s, help=f"{s.help} ({', '.join(owners[s.name])})") for s in first.values()]
