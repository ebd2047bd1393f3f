"""A setting of a space, a score or a command, declared once by its owner."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from zerolm.settings.kinds import KINDS, KindName
from zerolm.settings.messages import called, nearest, shown


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = _Required()
"""The default of a setting that has none."""


@dataclass(frozen=True)
class Setting:
    """One setting: its flag, YAML key, help and error messages all come from here.

    ``kind`` says how text becomes a value: ``integer`` (8k too), ``amount`` (8k too, or 0.8x: a share of what
    is known later), ``number``, ``percent`` (10% or .1), ``duration`` (90s, 30m, 1.5h: in seconds),
    ``integers`` (2,4 or LOW:HIGH or LOW:HIGH:STEP), ``numbers``, ``shares`` (numbers in the order given),
    ``interval`` (LOW:HIGH), ``flag``, ``text``, ``path`` (a file, a folder, or a word in its place),
    ``names`` (A,B,C, or a list) or ``paths`` (the same, of files and folders). ``default`` is ``REQUIRED``
    where there is none, and None where it depends on other settings. ``choices`` are the only possible values
    where there are any, ``low`` to ``high`` the only possible numbers; a ``low`` of 0 leaves 0 itself out of
    numbers and intervals. ``off`` names the flag that says no. ``examples`` are values to show where none is
    given.
    """

    name: str
    kind: KindName
    default: Any
    help: str
    choices: tuple[Any, ...] = ()
    low: float | None = None
    high: float | None = None
    off: str = ""
    metavar: str = ""
    examples: tuple[Any, ...] = ()

    @property
    def step(self) -> int:
        """Return the step of LOW:HIGH where none is given: that of the default."""
        return self.default.step if isinstance(self.default, range) else 1

    @property
    def flag(self) -> str:
        """Return the flag; the last underscore of a name that Python keeps for itself is not in it."""
        return "--" + self.name.rstrip("_").replace("_", "-")

    @property
    def called(self) -> str:
        """Its name in messages: its flag where a command line is run, else its own name."""
        return called(self.name)

    @property
    def sentence(self) -> str:
        """Return the help as a sentence without its full stop: names, choices and files keep their case."""
        first, _, rest = self.help.partition(" ")
        is_name = not re.fullmatch(r"[a-z-]+[,:;]?", first) or first in map(str, self.choices)
        is_value = is_name or (rest.startswith("(") and (" or " in rest or ", " in rest))
        return self.help if is_value else self.help[:1].upper() + self.help[1:]

    @property
    def takes_several(self) -> bool:
        """Return whether the value is a list of names or paths."""
        return self.kind in ("names", "paths", "texts")

    @property
    def placeholder(self) -> str:
        """Return the placeholder of a value in help: the choices, or capitals."""
        return self.metavar or "|".join(map(str, self.choices)) or KINDS[self.kind].metavar

    @property
    def default_text(self) -> str:
        """Return the default as a user types it, empty where there is none."""
        has_none = self.default is None or self.default is REQUIRED
        return "" if has_none else KINDS[self.kind].show(self.default)

    def parse(self, value: Any) -> Any:
        """Return the value of what a user types, or YAML holds; ``ValueError`` says what is possible."""
        if isinstance(value, bool) and self.kind != "flag":
            raise ValueError(f"{self.called} cannot be {str(value).lower()}: it is no switch")
        return KINDS[self.kind].parse(self, value)

    def check(self, value: Any) -> Any:
        """Return a value of Python or JSON in its plain form; ``ValueError`` where it is none of the kind.

        Integers and numbers come sorted and distinct, as tuples.
        """
        if value is None and self.default is None:
            return None
        return KINDS[self.kind].check(self, value if self.takes_several else self.check_choice(value))

    def repeatable(self, value: Any) -> Any:
        """Return a checked value as it means the same wherever a run is repeated: existing paths absolute."""
        return None if value is None else KINDS[self.kind].repeatable(self, value)

    def check_choice(self, value: Any) -> Any:
        """Return a value that is one of the choices, if there are any; ``ValueError`` else."""
        if self.choices and value not in self.choices:
            raise ValueError(f"{self.called} {shown(value)} is not known{nearest(str(value), self.choices)}")
        return value


def with_defaults(settings: Iterable[Setting], **defaults: Any) -> tuple[Setting, ...]:
    """Return settings with other defaults."""
    return tuple(replace(s, default=defaults.get(s.name, s.default)) for s in settings)


def check_settings(owner: str, settings: Sequence[Setting], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return all values, those of ``values`` or by default; ``ValueError`` where one is missing."""
    for name in values:
        setting_of(owner, settings, name)
    for setting in settings:
        if setting.default is REQUIRED and setting.name not in values:
            raise ValueError(f"{owner} needs {setting.called}: {setting.help}")
    return {s.name: s.check(values.get(s.name, s.default)) for s in settings}


def parsed(owner: str, settings: Sequence[Setting], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked values of those that are given; ``ValueError`` for one that ``owner`` lacks."""
    declared = {name: setting_of(owner, settings, name) for name in values}
    return {name: item.parse(values[name]) for name, item in declared.items() if values[name] is not None}


def setting_of(owner: str, settings: Sequence[Setting], name: str) -> Setting:
    """Return the setting of a name; ``ValueError`` suggests the nearest."""
    by_name = {setting.name: setting for setting in settings}
    if name not in by_name:
        raise ValueError(f"{owner} has no setting {shown(name)}{nearest(name, by_name)}")
    return by_name[name]
