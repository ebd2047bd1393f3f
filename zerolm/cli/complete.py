"""The Tab key: words of commands, and names of spaces, scores, proxies and the like for a value."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from zerolm.settings import Setting
from zerolm.verbs import VERBS

VARIABLE: Final = "_ZEROLM_COMPLETE"
"""Set by a shell that asks what the Tab key offers."""
HOMES: Final = {
    "space": "zerolm.spaces:SPACES",
    "score": "zerolm.scores:SCORES",
    "format": "zerolm.carving.formats:FORMATS",
    "repair": "zerolm.repairing.rules:REPAIRS",
    "proxy": "zerolm.zero_cost.definitions",
    "benchmark": "zerolm.groundtruth.cache:shipped_names",
}
"""Where the names of each kind are."""
KINDS: Final = {
    **{kind: kind for kind in HOMES},
    "proxies": "proxy",
    "names": "benchmark",
    "benchmarks": "benchmark",
}
"""The kind of name that a setting takes, by the name of the setting."""


def is_asked() -> bool:
    """Return whether a shell asks what the Tab key offers."""
    return VARIABLE in os.environ


def completion(setting: Setting) -> Callable[[Any, Any, str], list[str]] | None:
    """Return what completes the value of a setting; None where the shell does, with names of files."""
    kind = "space" if setting.metavar == "SPACE" else KINDS.get(setting.name)
    if kind is None and not setting.choices:
        return None

    def complete(context: Any, parameter: Any, incomplete: str) -> list[str]:
        if setting.choices:
            return _beginning(incomplete, map(str, setting.choices))
        before, comma, last = incomplete.rpartition(",") if setting.takes_several else ("", "", incomplete)
        return [f"{before}{comma}{name}" for name in _beginning(last, names_of(kind or ""))]

    return complete


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def names_of(kind: str) -> list[str]:
    """Return all names of a kind; those of proxies are read, for importing them imports torch."""
    module, _, attribute = HOMES[kind].partition(":")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if attribute:
            names = getattr(import_module(module), attribute)
            return [str(name) for name in (names() if callable(names) else names)]
    room = find_spec(module.rpartition(".")[0])
    folders = room.submodule_search_locations if room and room.submodule_search_locations else []
    files = [file for folder in folders for file in (Path(folder) / "definitions").glob("*.py")]
    texts = (file.read_text(encoding="utf-8") for file in sorted(files))
    return [name for text in texts for name in re.findall(r'^@proxy\(\s*"([a-z0-9_]+)"', text, re.MULTILINE)]


def words(begun: list[str]) -> dict[str, str]:
    """Return the words that may follow the first of a command's name, and what the command does."""
    following: dict[str, str] = {}
    for name, verb in VERBS.items():
        parts = name.split()
        if parts[: len(begun)] == begun and len(parts) > len(begun):
            following.setdefault(parts[len(begun)], verb.summary if len(parts) == len(begun) + 1 else "")
    return following
