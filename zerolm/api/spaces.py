"""``zerolm.list_spaces``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zerolm.api.documented import documented
from zerolm.api.report import Shown
from zerolm.commands.listings import SPACES as COMMAND
from zerolm.settings import REQUIRED, Setting
from zerolm.spaces import SPACES, make_space


@dataclass(frozen=True, repr=False)
class SpacesReport(Shown):
    """The search spaces; each has ``name``, exact ``size``, ``summary`` and default ``settings``."""

    spaces: list[dict[str, Any]]

    def rows(self) -> list[dict[str, Any]]:
        return [{name: space[name] for name in ("name", "size", "summary")} for space in self.spaces]

    def lines(self) -> list[str]:
        width = max(len(f"{space['size']:,}") for space in self.spaces)
        return [f"{s['name']:<15} {s['size']:>{width},}  {s['summary']}" for s in self.spaces]

    def to_json(self) -> list[dict[str, Any]]:
        return self.spaces


@dataclass(frozen=True, repr=False)
class SpaceReport(Shown):
    """One search space: its ``name``, its exact ``size``, a ``summary`` and what can be set of it."""

    name: str
    size: int
    summary: str
    settings: tuple[Setting, ...]

    def rows(self) -> list[dict[str, Any]]:
        return [_document(setting) for setting in self.settings]

    def lines(self) -> list[str]:
        cells = [(s.flag, s.placeholder, s.default_text) for s in self.settings]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [f"{self.name}: {self.summary}"]
        for setting, row in zip(self.settings, cells, strict=True):
            padded = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
            lines.append(f"  {'  '.join(padded)}  {setting.help}")
        return lines

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "size": self.size, "summary": self.summary, "settings": self.rows()}


@documented(COMMAND)
def list_spaces(name: str | None = None) -> SpacesReport | SpaceReport:
    """Return the search spaces with their exact size, or the settings of one.

    Raises ``ValueError`` for a space that is not known.
    """
    name = COMMAND.values({"name": name})["name"]
    if name is None:
        made = [make_space(known) for known in SPACES]
        return SpacesReport([_row(space.name) | {"settings": space.settings} for space in made])
    return SpaceReport(**_row(name), settings=SPACES[name].declared)


def _row(name: str) -> dict[str, Any]:
    return {"name": name, "size": make_space(name).size(), "summary": SPACES[name].summary}


def _document(setting: Setting) -> dict[str, Any]:
    default = None if setting.default is REQUIRED else setting.default
    return {
        "name": setting.name,
        "kind": setting.kind,
        "default": list(default) if isinstance(default, range | tuple) else default,
        "help": setting.help,
        "choices": list(setting.choices),
    }
