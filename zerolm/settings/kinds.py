"""Kinds of settings: each reads what a user types, checks a value of Python or JSON, and shows it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Final, Literal, Protocol

from zerolm.settings.domains import domains_of
from zerolm.settings.messages import shown
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

CACHE_TYPES: Final = {
    "f32": 32, "f16": 16, "bf16": 16, "q8_0": 8.5, "q5_1": 6, "q5_0": 5.5, "q4_1": 5, "q4_0": 4.5,
    "iq4_nl": 4.5,
}  # fmt: skip
"""Bits of a number in the cache of llama.cpp, scales included, by the names of its ``--cache-type-k``."""
LONGEST_NAME: Final = 255
LONGEST_PATH: Final = 4000
"""What file systems take."""


class DeclaredSetting(Protocol):
    """A setting as its kind reads it: its name, its choices and bounds, and what stands for its value."""

    @property
    def called(self) -> str: ...
    @property
    def metavar(self) -> str: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...
    @property
    def step(self) -> int: ...
    def check(self, value: Any) -> Any: ...
    def check_choice(self, value: Any) -> Any: ...


class Kind:
    """A kind of setting. ``metavar`` stands for a value in help, ``annotation`` is what Python is given."""

    is_integral = False

    def __init__(self, metavar: str, annotation: str) -> None:
        self.metavar, self.annotation = metavar, annotation

    def parse(self, setting: DeclaredSetting, value: Any) -> Any:
        """Return the value of what a user types, or YAML holds; ``ValueError`` says what is possible."""
        return setting.check(value)

    def check(self, setting: DeclaredSetting, value: Any) -> Any:
        """Return a value of Python or JSON in its plain form; ``ValueError`` where it is none of the kind."""
        raise NotImplementedError

    def repeatable(self, setting: DeclaredSetting, value: Any) -> Any:
        """Return a checked value as it means the same wherever a run is repeated."""
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

    def check(self, setting: DeclaredSetting, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"{setting.called} must be true or false, not {shown(value)}")
        return value

    def show(self, value: Any) -> str:
        return str(value).lower()


class TextKind(Kind):
    """One word or more."""

    def check(self, setting: DeclaredSetting, value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError(f"{setting.called} must be text, not {shown(value)}")
        if not value.strip():
            raise ValueError(f"{setting.called} is empty; leave it out, or name one")
        return value


class PathKind(Kind):
    """A file, a folder, or a word in its place."""

    def check(self, setting: DeclaredSetting, value: Any) -> str:
        if not isinstance(value, str | PathLike) or not isinstance(fspath(value), str):
            raise ValueError(f"{setting.called} must be a path, not {shown(value)}")
        path = fspath(value)
        if not path.strip() or "\0" in path:
            raise ValueError(f"{setting.called} names no {'folder' if setting.metavar == 'DIR' else 'file'}")
        if max(map(len, path.split("/"))) > LONGEST_NAME or len(path) > LONGEST_PATH:
            raise ValueError(f"{setting.called} {shown(path)} is too long for a path")
        return path

    def repeatable(self, setting: DeclaredSetting, value: Any) -> Any:
        is_word = value in setting.metavar.split("|")
        return value if is_word else absolute(value)


class NamesKind(PathKind):
    """Names, or paths where ``are_paths``: A,B,C, or a list."""

    def __init__(self, metavar: str, annotation: str, *, are_paths: bool = False) -> None:
        super().__init__(metavar, annotation)
        self.are_paths = are_paths

    def repeatable(self, setting: DeclaredSetting, value: Any) -> Any:
        return [absolute(name) for name in value] if self.are_paths and value else value

    def parse(self, setting: DeclaredSetting, value: Any) -> Any:
        return setting.check(value.split(",") if isinstance(value, str) else value)

    def check(self, setting: DeclaredSetting, value: Any) -> Any:
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

    def parse(self, setting: DeclaredSetting, value: Any) -> Any:
        return setting.check(",".join(value) if isinstance(value, list | tuple) else value)

    def check(self, setting: DeclaredSetting, value: Any) -> str:
        if isinstance(value, Mapping):
            if not value or not all(isinstance(path, str | PathLike) for path in value.values()):
                raise ValueError(f"{setting.called} must be a path, or paths by name, not {shown(value)}")
            value = ",".join(f"{name}={fspath(path)}" for name, path in value.items())
        return super().check(setting, value)

    def repeatable(self, setting: DeclaredSetting, value: Any) -> Any:
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
        is_integral: bool = False,
        quotes: bool = True,
    ) -> None:
        super().__init__(metavar, annotation)
        self.read, self.is_integral, self.quotes = read, is_integral, quotes

    def parse(self, setting: DeclaredSetting, value: Any) -> Any:
        number = setting.check_choice(self.read(setting.called, value))
        return in_bounds(setting, number, self.is_integral, typed=value if self.quotes else None)

    def check(self, setting: DeclaredSetting, value: Any) -> Any:
        return in_bounds(setting, value, self.is_integral)


class CacheBitsKind(NumberKind):
    """Bits of a cached number, in halves: a number, or a type of llama.cpp's cache by its name."""

    def parse(self, setting: DeclaredSetting, value: Any) -> Any:
        named = CACHE_TYPES.get(value.lower()) if isinstance(value, str) else None
        return self.check(setting, super().parse(setting, value) if named is None else named)

    def check(self, setting: DeclaredSetting, value: Any) -> Any:
        bits = in_bounds(setting, value, self.is_integral)
        if 2 * bits != round(2 * bits):
            raise ValueError(f"{setting.called} must be whole or half bits, as 8.5, not {shown(value)}")
        return int(bits) if bits == int(bits) else bits


class AmountKind(NumberKind):
    """A count or size, or a share of what is known later: 0.8x."""

    def parse(self, setting: DeclaredSetting, value: Any) -> Any:
        return setting.check(parse_share(value) or self.read(setting.called, value))

    def check(self, setting: DeclaredSetting, value: Any) -> Any:
        return parse_share(value) or super().check(setting, value)


class NumbersKind(Kind):
    """Several numbers: sorted and distinct, or as they are given where ``keeps_order``."""

    def __init__(
        self, metavar: str, annotation: str, *, is_integral: bool = False, keeps_order: bool = False
    ) -> None:
        super().__init__(metavar, annotation)
        self.is_integral, self.keeps_order = is_integral, keeps_order

    def parse(self, setting: DeclaredSetting, value: Any) -> Any:
        if self.is_integral:
            return setting.check(parse_integers(setting.called, value, setting.step))
        return setting.check(parse_numbers(setting.called, value))

    def check(self, setting: DeclaredSetting, value: Any) -> tuple[Any, ...]:
        _check_list(setting, value, self.is_integral)
        if not value:
            raise ValueError(
                f"the range of {setting.called} is empty; give at least one {_one(setting, self.is_integral)}"
            )
        numbers = [in_bounds(setting, item, self.is_integral) for item in value]
        return tuple(numbers if self.keeps_order else sorted(set(numbers)))


class IntervalKind(Kind):
    """Two numbers LOW:HIGH."""

    def parse(self, setting: DeclaredSetting, value: Any) -> Any:
        if not isinstance(value, str):
            return setting.check(value)
        try:
            ends = parse_numbers(setting.called, value, ":")
        except ValueError:
            message = f"{setting.called} must be two numbers LOW:HIGH, not {shown(value)}"
            raise ValueError(message) from None
        return setting.check(ends)

    def check(self, setting: DeclaredSetting, value: Any) -> tuple[float, float]:
        _check_list(setting, value, False)
        try:
            low, high = (float(end) for end in value)
        except (OverflowError, TypeError, ValueError):
            low, high = 0.0, -1.0
        least = -math.inf if setting.low is None else setting.low
        if not least <= low <= high < math.inf or (_is_positive(setting, False) and low == 0):
            several = _several(setting, False)
            raise ValueError(f"{setting.called} must be two {several} LOW:HIGH, not {shown(value)}")
        return low, high

    def show(self, value: Any) -> str:
        return ":".join(f"{item:.12g}" for item in value)


def absolute(path: Any) -> Any:
    """Return a path as it holds wherever a run is repeated; what names nothing on the disk stays as it is."""
    return os.path.abspath(path) if isinstance(path, str) and os.path.exists(path) else path


def in_bounds(setting: DeclaredSetting, value: Any, is_integral: bool, typed: Any = None) -> Any:
    """Return a number within the bounds of a setting; ``ValueError`` quotes what was ``typed``."""
    typed = value if typed is None else typed
    article = "an" if is_integral else "a"
    if isinstance(value, bool) or not hasattr(value, "__index__" if is_integral else "__float__"):
        kind = "integer" if is_integral else _one(setting, is_integral)
        raise ValueError(f"{setting.called} must be {article} {kind}, not {shown(typed)}")
    number = value.__index__() if hasattr(value, "__index__") else float(value)
    low = -math.inf if setting.low is None else setting.low
    high = math.inf if setting.high is None else setting.high
    is_zero = _is_positive(setting, is_integral) and number == 0
    if not low <= number <= high or not is_finite(number) or is_zero:
        name, one = setting.called, _one(setting, is_integral)
        raise ValueError(f"{name} must be {article} {one}, not {shown(typed)}")
    return number


def _check_list(setting: DeclaredSetting, value: Any, is_integral: bool) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        several = _several(setting, is_integral)
        raise ValueError(f"the range of {setting.called} must be a list of {several}, not {shown(value)}")


def _is_positive(setting: DeclaredSetting, is_integral: bool) -> bool:
    """Return whether 0 itself is out."""
    return setting.low == 0 and not is_integral


def _several(setting: DeclaredSetting, is_integral: bool) -> str:
    if is_integral:
        return "integers"
    return "positive numbers" if _is_positive(setting, is_integral) else "numbers"


def _one(setting: DeclaredSetting, is_integral: bool) -> str:
    """Return one number in words: integer from 1 to 64."""
    is_positive = _is_positive(setting, is_integral)
    one = ("positive " if is_positive else "") + ("integer" if is_integral else "number")
    low = "" if setting.low is None or is_positive else _plain(setting.low)
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
    "shares": NumbersKind("X,Y,...", "float | str | Sequence[float]", keeps_order=True),
    "interval": IntervalKind("LOW:HIGH", "str | Sequence[float]"),
    "flag": FlagKind("", "bool"),
    "text": TextKind("TEXT", "str"),
    "path": PathKind("FILE", PATH),
    "texts": TextsKind("FILE", f"{PATH} | Mapping[str, {PATH}]"),
    "names": NamesKind("A,B,C", f"{PATH} | Sequence[{PATH}]"),
    "paths": NamesKind("A,B,C", f"{PATH} | Sequence[{PATH}]", are_paths=True),
}
"""All kinds by name. ``paths`` are ``names`` that hold wherever a run is repeated."""
