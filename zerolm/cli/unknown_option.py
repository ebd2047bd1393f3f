"""The message for an option that a command does not have: what was meant, or which commands have it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

import click

from zerolm.cli.parser import DeclaredCommand
from zerolm.settings.request import PLACED
from zerolm.verbs import commands, verb_of

NEAR: Final = 0.7
"""The least similarity of a mistyped flag; unrelated flags with one initial stay below it."""
WHOLE: Final = 4
"""Letters that suffice to mean a longer flag, which begins or ends with them."""
LONGEST: Final = 80
LISTED: Final = 3
"""Commands that a message lists, at most."""


def unknown_option(command: str, option: str) -> str:
    """Return the message for an option that the command of this name does not have."""
    option = option[:LONGEST]
    word = option.removeprefix("--")
    others = [name for name in commands() if option in flags(name)]
    if placed := [one for one in verb_of(command).request.groups()[PLACED] if one.name == word]:
        cure = f"give {placed[0].placeholder} without it"
    elif near := nearest_flag(word, flags(command)):
        cure = f"did you mean {near!r}?"
    elif others:
        more = f" and {len(others) - LISTED} more" if len(others) > LISTED else ""
        cure = f"zerolm {', '.join(others[:LISTED])}{more} {'have' if others[1:] else 'has'} it"
    else:
        cure = f"zerolm {command} --help lists all"
    return f"{command} has no option {option}; {cure}"


def flags(name: str) -> list[str]:
    """Return the flags of a command that begin with two dashes, with those of all spaces and scores."""
    params: list[click.Parameter] = DeclaredCommand(name, [name]).params
    both = [flag for param in params for flag in (*param.opts, *param.secondary_opts)]
    return [flag for flag in both if flag.startswith("--")]


def nearest_flag(word: str, possible: Iterable[str]) -> str | None:
    """Return the flag that a word is a misspelling of, or that begins or ends with it; None without one."""
    names = [flag.removeprefix("--") for flag in possible]
    near = get_close_matches(word, [name for name in names if name[0] == word[:1]], 1, NEAR)
    if not near and len(word) >= WHOLE:
        near = [name for name in names if name.startswith(word) or name.endswith(f"-{word}")]
    return f"--{near[0]}" if near else None
