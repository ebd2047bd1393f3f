"""Settings of spaces and scores as flags of a command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zerolm.cli.flags import declared
from zerolm.commands import OUTPUT, Command
from zerolm.registry import Entry
from zerolm.scores import SCORES
from zerolm.settings import Setting
from zerolm.spaces import SPACES

TITLES = {"spaces": "Settings of spaces", "scores": "Options of scores"}


def further_settings(command: Command, arguments: Sequence[str]) -> dict[str, tuple[Setting, ...]]:
    """Return the settings of the owners by heading, those of one owner where help is asked of it."""
    taken = {setting.name for setting in (*command.settings, *OUTPUT)}
    asked = {"-h", "--help"} & set(arguments)
    groups: dict[str, tuple[Setting, ...]] = {}
    for kind in command.owners:
        entries: list[Entry[Any]] = [*(SPACES.entries() if kind == "spaces" else SCORES.entries())]
        if asked:
            named = [entry for entry in entries if entry.name in arguments]
            titled = {f"Settings of {entry.name}": entry.options for entry in named}
        else:
            titled = {TITLES[kind]: tuple(declared(entries, taken))}
        for title, settings in titled.items():
            groups[title] = tuple(s for s in settings if s.name not in taken)
            taken |= {setting.name for setting in settings}
    return groups
