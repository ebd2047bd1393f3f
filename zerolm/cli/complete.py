"""The Tab key: words of commands, and names of spaces, scores and the like for a value."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from zerolm.settings import Setting, check_known
from zerolm.verbs import MORE, VERBS, beginning

VARIABLE: Final = "_ZEROLM_COMPLETE"
"""Set by a shell that asks what the Tab key offers."""
HOMES: Final = {
    "space": "zerolm.spaces:SPACES",
    "score": "zerolm.scores:SCORES",
    "format": "zerolm.carving.formats:FORMATS",
    "benchmark": "zerolm.groundtruth.cache:shipped_names",
}
"""Where the names of each kind are."""
KINDS: Final = {
    **{kind: kind for kind in HOMES},
    "names": "benchmark",
    "benchmarks": "benchmark",
}
"""The kind of name that a setting takes, by the name of the setting."""
PLACES: Final = {
    "bash": (".local/share/zerolm/complete.bash", ".bashrc"),
    "zsh": (".local/share/zerolm/complete.zsh", ".zshrc"),
    "fish": (".config/fish/completions/zerolm.fish", ""),
}
"""Where the script of a shell is written, and the file that reads it; fish needs none."""


def is_asked() -> bool:
    """Return whether a shell asks what the Tab key offers."""
    return VARIABLE in os.environ


def completion(setting: Setting, home: str = "") -> Callable[[Any, Any, str], list[str]] | None:
    """Return a function that completes the value of a setting; None where the shell completes names of files.

    ``home`` is where the names are, ``module:attribute``, for a setting that ``KINDS`` lacks.
    """
    kind = "space" if setting.metavar == "SPACE" else KINDS.get(setting.name)
    home = home or HOMES.get(kind or "", "")
    if not home and not setting.choices:
        return None

    def complete(context: Any, parameter: Any, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",") if setting.takes_several else ("", "", incomplete)
        names = map(str, setting.choices) if setting.choices else names_of(home)
        return [f"{before}{comma}{name}" for name in names if name.startswith(last)]

    return complete


def names_of(home: str) -> list[str]:
    """Return the names that a module's attribute lists, or returns."""
    module, _, attribute = home.partition(":")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = getattr(import_module(module), attribute)
        return [str(name) for name in (names() if callable(names) else names)]


def words(begun: list[str]) -> dict[str, str]:
    """Return the words that may follow the first of a command's name, and what the command does."""
    following: dict[str, str] = {}
    for name, verb in (beginning(begun) if begun else VERBS).items():
        parts = name.split()
        if len(parts) > len(begun):
            following.setdefault(parts[len(begun)], verb.summary if len(parts) == len(begun) + 1 else "")
    return following if begun else following | MORE


def script_of(shell: str) -> str:
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    return str(kind(click.Group("zerolm"), {}, "zerolm", VARIABLE).source())


def install() -> str:
    """Write the script to the place where the user's shell reads it, and return a sentence on it."""
    shell = user_shell()
    place, reader = PLACES[shell]
    script = Path.home() / place
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(script_of(shell), encoding="utf-8")
    if reader:
        file, line = Path.home() / reader, f"source '{script}'\n"
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        if line not in text:
            end = "\n" if text and not text.endswith("\n") else ""
            file.write_text(f"{text}{end}{line}", encoding="utf-8")
    return f"{shell} completes zerolm from its next start on"


def user_shell() -> str:
    """Return the name of the user's shell; ``ValueError`` where it is none that is known."""
    name = Path(os.environ.get("SHELL", "")).name
    check_known("SHELL", name, PLACES)
    return name
