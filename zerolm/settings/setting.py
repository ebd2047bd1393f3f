"""A setting: what a space, a score or a proxy can be told, declared once by what has it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any, Final, Literal

from zerolm.settings.messages import nearest, shown
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

Kind = Literal[
    "integer",
    "amount",
    "number",
    "percent",
    "duration",
    "integers",
    "numbers",
    "shares",
    "interval",
    "flag",
    "text",
    "path",
    "names",
]
METAVARS: Final[dict[Kind, str]] = {
    "integer": "N",
    "amount": "AMOUNT",
    "number": "X",
    "percent": "X%",
    "duration": "TIME",
    "integers": "RANGE",
    "numbers": "X,Y,...",
    "shares": "X,Y,...",
    "interval": "LOW:HIGH",
    "flag": "",
    "text": "TEXT",
    "path": "FILE",
    "names": "A,B,C",
}


LONGEST_NAME: Final = 255
LONGEST_PATH: Final = 4000
"""What file systems take."""


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = _Required()
"""The default of a setting that has none."""


@dataclass(frozen=True)
class Setting:
    """One setting: its flag, YAML key, help and error messages all come from here.

    ``kind`` says how text becomes a value: ``integer`` (8k too), ``amount`` (8k too, or 0.8x: a share of
    what is known later), ``number``, ``percent`` (10% or .1), ``duration`` (90s, 30m, 1.5h: in seconds),
    ``integers`` (2,4 or LOW:HIGH or LOW:HIGH:STEP), ``numbers``, ``shares`` (numbers in the order given),
    ``interval`` (LOW:HIGH), ``flag``, ``text``, ``path`` (a file, a folder, or a word in its place) or
    ``names`` (A,B,C, or a list of names and paths). ``default`` is ``REQUIRED`` where there is none, and
    None where it depends on other settings. ``choices`` are the only possible values where there are any,
    ``low`` to ``high`` the only possible numbers; a ``low`` of 0 leaves 0 itself out of numbers and
    intervals. ``off`` names the flag that says no. ``examples`` are values to show where nobody gives
    one.
    """

    name: str
    kind: Kind
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
    def placeholder(self) -> str:
        """Return what stands for a value in help: the choices, or capitals."""
        return self.metavar or "|".join(map(str, self.choices)) or METAVARS[self.kind]

    @property
    def default_text(self) -> str:
        """Return the default as a user types it, empty where there is none."""
        value = self.default
        if value is None or value is REQUIRED:
            return ""
        if isinstance(value, range) and len(value) > 1:
            return f"{value[0]}:{value[-1]}" + (f":{value.step}" if value.step > 1 else "")
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, Sequence) and not isinstance(value, str):
            separator = ":" if self.kind == "interval" else ","
            return separator.join(item if isinstance(item, str) else f"{item:.12g}" for item in value)
        return str(value)

    def parse(self, value: Any) -> Any:
        """Return the value of what a user types, or YAML holds; ``ValueError`` says what is possible."""
        if isinstance(value, bool) and self.kind != "flag":
            raise ValueError(f"{self.name} cannot be {str(value).lower()}: it is no switch")
        if self.kind == "amount":
            return self.check(parse_share(value) or parse_amount(self.name, value))
        if self.kind in ("integer", "number"):
            parse = parse_integer if self.kind == "integer" else parse_number
            return self._number(self.check_choice(parse(self.name, value)), said=value)
        if self.kind == "percent":
            return self._number(parse_percent(self.name, value), said=value)
        if self.kind == "duration":
            value = parse_duration(self.name.rstrip("_"), value)
        elif self.kind == "integers":
            value = parse_integers(self.name, value, self.step)
        elif self.kind in ("numbers", "shares"):
            value = parse_numbers(self.name, value)
        elif self.kind == "interval" and isinstance(value, str):
            value = _ends(self.name, value)
        elif self.kind == "names" and isinstance(value, str):
            value = value.split(",")
        return self.check(value)

    def check(self, value: Any) -> Any:
        """Return a value of Python or JSON in its plain form; ``ValueError`` where it is none of the kind.

        Integers and numbers come sorted and distinct, as tuples.
        """
        if value is None and self.default is None:
            return None
        self.check_choice(value)
        if self.kind == "flag":
            if not isinstance(value, bool):
                raise ValueError(f"{self.name} must be true or false, not {shown(value)}")
            return value
        if self.kind == "path":
            return self._path(value)
        if self.kind == "names":
            return self._names(value)
        if self.kind == "text":
            if not isinstance(value, str):
                raise ValueError(f"{self.name} must be text, not {shown(value)}")
            if not value.strip():
                raise ValueError(f"{self.name} is empty; leave it out, or name one")
            return value
        if self.kind == "amount" and parse_share(value):
            return parse_share(value)
        if self.kind in ("integer", "amount", "number", "percent", "duration"):
            return self._number(value)
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ValueError(
                f"the range of {self.name} must be a list of {self._several}, not {shown(value)}"
            )
        if self.kind == "interval":
            return self._interval(value)
        if not value:
            raise ValueError(f"the range of {self.name} is empty; give at least one {self._one}")
        if self.kind == "shares":
            return tuple(self._number(item) for item in value)
        return tuple(sorted({self._number(item) for item in value}))

    def check_choice(self, value: Any) -> Any:
        """Return a value that is one of the choices, if there are any; ``ValueError`` else."""
        if self.choices and value not in self.choices:
            raise ValueError(f"{self.name} {shown(value)} is not known{nearest(str(value), self.choices)}")
        return value

    def _path(self, value: Any) -> str:
        if not isinstance(value, str | PathLike) or not isinstance(fspath(value), str):
            raise ValueError(f"{self.name} must be a path, not {shown(value)}")
        path = fspath(value)
        if not path.strip() or "\0" in path:
            raise ValueError(f"{self.name} names no {'folder' if self.metavar == 'DIR' else 'file'}")
        if max(map(len, path.split("/"))) > LONGEST_NAME or len(path) > LONGEST_PATH:
            raise ValueError(f"{self.name} {shown(path)} is too long for a path")
        return path

    def _names(self, value: Any) -> tuple[str, ...]:
        names = [value] if isinstance(value, str | PathLike) else value
        if not isinstance(names, list | tuple) or not all(isinstance(n, str | PathLike) for n in names):
            raise ValueError(f"{self.name} must be names, not {shown(value)}")
        texts = [fspath(name) for name in names]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{self.name} must be names, not {shown(value)}")
        return tuple(self._path(text.strip()) for text in texts if text.strip())

    @property
    def _integral(self) -> bool:
        return self.kind in ("integer", "amount", "integers", "duration")

    @property
    def _is_positive(self) -> bool:
        """Return whether 0 itself is out."""
        return self.low == 0 and not self._integral

    @property
    def _several(self) -> str:
        return "integers" if self._integral else "positive numbers" if self._is_positive else "numbers"

    @property
    def _one(self) -> str:
        """Return one number in words: an integer from 1 to 64."""
        one = "integer" if self._integral else "number"
        one = f"positive {one}" if self._is_positive else one
        low = "" if self.low is None or self._is_positive else _plain(self.low)
        high = "" if self.high is None else _plain(self.high)
        if low and high:
            return f"{one} from {low} to {high}"
        return one + (f" of at least {low}" if low else "") + (f" up to {high}" if high else "")

    def _number(self, value: Any, said: Any = None) -> Any:
        said = value if said is None else said
        article = "an" if self._integral else "a"
        if isinstance(value, bool) or not hasattr(value, "__index__" if self._integral else "__float__"):
            kind = "integer" if self._integral else self._one
            raise ValueError(f"{self.name} must be {article} {kind}, not {shown(said)}")
        number = value.__index__() if hasattr(value, "__index__") else float(value)
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if not low <= number <= high or not is_finite(number) or (self._is_positive and number == 0):
            raise ValueError(f"{self.name.rstrip('_')} must be {article} {self._one}, not {shown(said)}")
        return number

    def _interval(self, value: Sequence[Any]) -> tuple[float, float]:
        try:
            low, high = (float(end) for end in value)
        except (OverflowError, TypeError, ValueError):
            low, high = 0.0, -1.0
        least = -math.inf if self.low is None else self.low
        if not least <= low <= high < math.inf or (self._is_positive and low == 0):
            raise ValueError(f"{self.name} must be two {self._several} LOW:HIGH, not {shown(value)}")
        return low, high


def with_defaults(settings: Iterable[Setting], **defaults: Any) -> tuple[Setting, ...]:
    """Return settings with other defaults."""
    return tuple(replace(s, default=defaults.get(s.name, s.default)) for s in settings)


def check_settings(owner: str, settings: Sequence[Setting], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every setting, given or by default; ``ValueError`` where one is missing."""
    for name in given:
        setting_of(owner, settings, name)
    for setting in settings:
        if setting.default is REQUIRED and setting.name not in given:
            raise ValueError(f"{owner} needs {setting.name}: {setting.help}")
    return {s.name: s.check(given.get(s.name, s.default)) for s in settings}


def setting_of(owner: str, settings: Sequence[Setting], name: str) -> Setting:
    """Return the setting of a name; ``ValueError`` suggests the nearest."""
    known = {setting.name: setting for setting in settings}
    if name not in known:
        raise ValueError(f"{owner} has no setting {shown(name)}{nearest(name, known)}")
    return known[name]


def _plain(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def _ends(name: str, text: str) -> list[float]:
    try:
        return parse_numbers(name, text, ":")
    except ValueError:
        raise ValueError(f"{name} must be two numbers LOW:HIGH, not {shown(text)}") from None
