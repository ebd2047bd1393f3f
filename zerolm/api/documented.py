"""The parameters of a verb in its docstring, from the declared settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from textwrap import indent, wrap
from typing import TypeVar

from zerolm.commands import Command
from zerolm.settings import Setting

Verb = TypeVar("Verb", bound=Callable[..., object])
WIDTH = 100


def documented(command: Command) -> Callable[[Verb], Verb]:
    """Return a decorator that adds the settings of a command to the docstring of its verb."""

    def decorate(verb: Verb) -> Verb:
        parts = [inspect.getdoc(verb) or "", "Parameters\n----------"]
        parts[1] += "".join(f"\n{_told(setting)}" for setting in command.settings)
        verb.__doc__ = "\n\n".join(parts) + "\n"
        return verb

    return decorate


def _told(setting: Setting) -> str:
    default = f"; {setting.default_text} by default" if setting.default_text else ""
    return f"{setting.name}\n" + indent("\n".join(wrap(f"{setting.help}{default}", WIDTH - 4)), "    ")
