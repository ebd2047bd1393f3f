"""A setting of a space, a score or a command, declared once by its owner."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any, Final, Literal

from zerolm.settings.domains import domains_of
from zerolm.settings.messages import called, check_known, nearest, shown
from zerolm.settings.units import (
    is_finite,
    parse_amount,
    parse_duration,
    parse_integer,
    parse_integers,
    parse_number,
    parse_numbers,
    parse_percent,
    parse_share,
)


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
    def is_integral(self) -> bool:
        return KINDS[self.kind].is_integral

    @property
    def is_positive(self) -> bool:
        """Return whether 0 itself is out."""
        return self.low == 0 and not self.is_integral

    @property
    def called(self) -> str:
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
        if self.choices:
            check_known(self.called, value, self.choices)
        return value


def with_defaults(settings: Iterable[Setting], **defaults: Any) -> tuple[Setting, ...]:
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


CACHE_TYPES: Final = {
    "f32": 32, "f16": 16, "bf16": 16, "q8_0": 8.5, "q5_1": 6, "q5_0": 5.5, "q4_1": 5, "q4_0": 4.5,
    "iq4_nl": 4.5,
}  # fmt: skip
"""Bits of a number in the cache of llama.cpp, scales included, by the names of its ``--cache-type-k``."""
LONGEST_NAME: Final = 255
LONGEST_PATH: Final = 4000
"""What file systems take."""


class Kind:
    """A kind of setting. ``metavar`` stands for a value in help, ``annotation`` is what Python is given."""

    def __init__(self, metavar: str, annotation: str, *, is_integral: bool = False) -> None:
        self.metavar, self.annotation, self.is_integral = metavar, annotation, is_integral

    def parse(self, setting: Setting, value: Any) -> Any:
        return setting.check(value)

    def check(self, setting: Setting, value: Any) -> Any:
        raise NotImplementedError

    def repeatable(self, setting: Setting, value: Any) -> Any:
        return value

    def show(self, value: Any) -> str:
        """Return a value as a user types it."""
        if isinstance(value, range) and len(value) > 1:
            return f"{value[0]}:{value[-1]}" + (f":{value.step}" if value.step > 1 else "")
        if isinstance(value, Sequence) and not isinstance(value, str):
            return ",".join(item if isinstance(item, str) else f"{item:.12g}" for item in value)
        return str(value)


class FlagKind(Kind):
    """A switch."""

    def check(self, setting: Setting, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"{setting.called} must be true or false, not {shown(value)}")
        return value

    def show(self, value: Any) -> str:
        return str(value).lower()


class TextKind(Kind):
    """One word or more."""

    def check(self, setting: Setting, value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"{setting.called} must be text, not {shown(value)}")
        if not value.strip():
            raise ValueError(f"{setting.called} is empty; leave it out, or name one")
        return value


class PathKind(Kind):
    """A file, a folder, or a word in its place."""

    def check(self, setting: Setting, value: Any) -> str:
        if not isinstance(value, str | PathLike) or not isinstance(fspath(value), str):
            raise ValueError(f"{setting.called} must be a path, not {shown(value)}")
        path = fspath(value)
        if not path.strip() or "\0" in path:
            raise ValueError(f"{setting.called} names no {'folder' if setting.metavar == 'DIR' else 'file'}")
        if max(map(len, path.split("/"))) > LONGEST_NAME or len(path) > LONGEST_PATH:
            raise ValueError(f"{setting.called} {shown(path)} is too long for a path")
        return path

    def repeatable(self, setting: Setting, value: Any) -> Any:
        is_word = value in setting.metavar.split("|")
        return value if is_word else absolute(value)


class NamesKind(PathKind):
    """Names, or paths where ``are_paths``: A,B,C, or a list."""

    def __init__(self, metavar: str, annotation: str, *, are_paths: bool = False) -> None:
        super().__init__(metavar, annotation)
        self.are_paths = are_paths

    def repeatable(self, setting: Setting, value: Any) -> Any:
        return [absolute(name) for name in value] if self.are_paths and value else value

    def parse(self, setting: Setting, value: Any) -> Any:
        return setting.check(value.split(",") if isinstance(value, str) else value)

    def check(self, setting: Setting, value: Any) -> Any:
        names = [value] if isinstance(value, str | PathLike) else value
        if not isinstance(names, list | tuple) or not all(isinstance(n, str | PathLike) for n in names):
            raise ValueError(f"{setting.called} must be names, not {shown(value)}")
        texts = [fspath(name) for name in names]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{setting.called} must be names, not {shown(value)}")
        names = (super(NamesKind, self).check(setting, text.strip()) for text in texts if text.strip())
        return tuple(map(setting.check_choice, names))


class TextsKind(PathKind):
    """A text, or texts by the names of their domains: code=FILE,chat=FILE, or a mapping."""

    def parse(self, setting: Setting, value: Any) -> Any:
        return setting.check(",".join(value) if isinstance(value, list | tuple) else value)

    def check(self, setting: Setting, value: Any) -> str:
        if isinstance(value, Mapping):
            if not value or not all(isinstance(path, str | PathLike) for path in value.values()):
                raise ValueError(f"{setting.called} must be a path, or paths by name, not {shown(value)}")
            value = ",".join(f"{name}={fspath(path)}" for name, path in value.items())
        return super().check(setting, value)

    def repeatable(self, setting: Setting, value: Any) -> Any:
        named = domains_of(value)
        if not named:
            return super().repeatable(setting, value)
        return ",".join(f"{name}={absolute(path)}" for name, path in named.items())


class NumberKind(Kind):
    """One number, read by ``read(name, text)``; messages quote what was typed where ``quotes``."""

    def __init__(
        self,
        metavar: str,
        annotation: str,
        read: Callable[[str, Any], Any],
        *,
        quotes: bool = True,
        **more: bool,
    ) -> None:
        super().__init__(metavar, annotation, **more)
        self.read, self.quotes = read, quotes

    def parse(self, setting: Setting, value: Any) -> Any:
        number = setting.check_choice(self.read(setting.called, value))
        return in_bounds(setting, number, typed=value if self.quotes else None)

    def check(self, setting: Setting, value: Any) -> Any:
        return in_bounds(setting, value)


class CacheBitsKind(NumberKind):
    """Bits of a cached number, in halves: a number, or a type of llama.cpp's cache by its name."""

    def parse(self, setting: Setting, value: Any) -> Any:
        named = CACHE_TYPES.get(value.lower()) if isinstance(value, str) else None
        if named is None and isinstance(value, str) and value[:1].isalpha():
            near = nearest(value, CACHE_TYPES)
            raise ValueError(f"{setting.called} {shown(value)} is neither bits nor a cache type{near}")
        return self.check(setting, super().parse(setting, value) if named is None else named)

    def check(self, setting: Setting, value: Any) -> Any:
        bits = in_bounds(setting, value)
        if 2 * bits != round(2 * bits):
            raise ValueError(f"{setting.called} must be whole or half bits, as 8.5, not {shown(value)}")
        return int(bits) if bits == int(bits) else bits


class AmountKind(NumberKind):
    """A count or size, or a share of what is known later: 0.8x."""

    def parse(self, setting: Setting, value: Any) -> Any:
        return setting.check(parse_share(value) or self.read(setting.called, value))

    def check(self, setting: Setting, value: Any) -> Any:
        return parse_share(value) or super().check(setting, value)


class NumbersKind(Kind):
    """Several numbers: sorted and distinct, or as they are given where ``keeps_order``."""

    keeps_order = False

    def parse(self, setting: Setting, value: Any) -> Any:
        if self.is_integral:
            return setting.check(parse_integers(setting.called, value, setting.step))
        return setting.check(parse_numbers(setting.called, value))

    def check(self, setting: Setting, value: Any) -> tuple[Any, ...]:
        _check_list(setting, value)
        if not value:
            raise ValueError(f"the range of {setting.called} is empty; give at least one {_one(setting)}")
        numbers = [in_bounds(setting, item) for item in value]
        return tuple(numbers if self.keeps_order else sorted(set(numbers)))


class SharesKind(NumbersKind):
    """Numbers in the order given."""

    keeps_order = True


class IntervalKind(Kind):
    """Two numbers LOW:HIGH."""

    def parse(self, setting: Setting, value: Any) -> Any:
        if not isinstance(value, str):
            return setting.check(value)
        try:
            ends = parse_numbers(setting.called, value, ":")
        except ValueError:
            message = f"{setting.called} must be two numbers LOW:HIGH, not {shown(value)}"
            raise ValueError(message) from None
        return setting.check(ends)

    def check(self, setting: Setting, value: Any) -> tuple[float, float]:
        _check_list(setting, value)
        try:
            low, high = (float(end) for end in value)
        except (OverflowError, TypeError, ValueError):
            low, high = 0.0, -1.0
        least = -math.inf if setting.low is None else setting.low
        if not least <= low <= high < math.inf or (setting.is_positive and low == 0):
            raise ValueError(f"{setting.called} must be two {_several(setting)} LOW:HIGH, not {shown(value)}")
        return low, high

    def show(self, value: Any) -> str:
        return ":".join(f"{item:.12g}" for item in value)


def absolute(path: Any) -> Any:
    """Return a path as it holds wherever a run is repeated; what names nothing on the disk stays as it is."""
    return os.path.abspath(path) if isinstance(path, str) and os.path.exists(path) else path


def in_bounds(setting: Setting, value: Any, typed: Any = None) -> Any:
    """Return a number within the bounds of a setting; ``ValueError`` quotes what was ``typed``."""
    typed = value if typed is None else typed
    article = "an" if setting.is_integral else "a"
    if isinstance(value, bool) or not hasattr(value, "__index__" if setting.is_integral else "__float__"):
        kind = "integer" if setting.is_integral else _one(setting)
        raise ValueError(f"{setting.called} must be {article} {kind}, not {shown(typed)}")
    number = value.__index__() if hasattr(value, "__index__") else float(value)
    low = -math.inf if setting.low is None else setting.low
    high = math.inf if setting.high is None else setting.high
    is_zero = setting.is_positive and number == 0
    if not low <= number <= high or not is_finite(number) or is_zero:
        raise ValueError(f"{setting.called} must be {article} {_one(setting)}, not {shown(typed)}")
    return number


def _check_list(setting: Setting, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        several = _several(setting)
        raise ValueError(f"the range of {setting.called} must be a list of {several}, not {shown(value)}")


def _several(setting: Setting) -> str:
    if setting.is_integral:
        return "integers"
    return "positive numbers" if setting.is_positive else "numbers"


def _one(setting: Setting) -> str:
    """Return one number in words: integer from 1 to 64."""
    one = _several(setting).removesuffix("s")
    low = "" if setting.low is None or setting.is_positive else _plain(setting.low)
    high = "" if setting.high is None else _plain(setting.high)
    if low and high:
        return f"{one} from {low} to {high}"
    return one + (f" of at least {low}" if low else "") + (f" up to {high}" if high else "")


def _plain(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


KindName = Literal[
    "integer", "amount", "number", "percent", "duration", "integers", "numbers", "shares", "interval",
    "flag", "text", "path", "texts", "names", "paths", "cache bits",
]  # fmt: skip
PATH: Final = "str | PathLike[str]"
KINDS: Final[dict[KindName, Kind]] = {
    "integer": NumberKind("N", "int | str", parse_integer, is_integral=True),
    "amount": AmountKind("AMOUNT", "int | str", parse_amount, is_integral=True),
    "number": NumberKind("X", "float", parse_number),
    "cache bits": CacheBitsKind("BITS", "float | str", parse_number),
    "percent": NumberKind("X%", "float | str", parse_percent),
    "duration": NumberKind("TIME", "int | str", parse_duration, is_integral=True, quotes=False),
    "integers": NumbersKind("RANGE", "int | str | Sequence[int]", is_integral=True),
    "numbers": NumbersKind("X,Y,...", "float | str | Sequence[float]"),
    "shares": SharesKind("X,Y,...", "float | str | Sequence[float]"),
    "interval": IntervalKind("LOW:HIGH", "str | Sequence[float]"),
    "flag": FlagKind("", "bool"),
    "text": TextKind("TEXT", "str"),
    "path": PathKind("FILE", PATH),
    "texts": TextsKind("FILE", f"{PATH} | Mapping[str, {PATH}]"),
    "names": NamesKind("A,B,C", f"{PATH} | Sequence[{PATH}]"),
    "paths": NamesKind("A,B,C", f"{PATH} | Sequence[{PATH}]", are_paths=True),
}
"""All kinds by name. ``paths`` are ``names`` that hold wherever a run is repeated."""
