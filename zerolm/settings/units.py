"""Numbers as people type them: 40M parameters, 64MB, ranges 4:32 and 256:2048:64."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from zerolm.settings.messages import shown

COUNTS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12}
BYTES: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
SECONDS: Final = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_NUMBER = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE]\+?[0-9]{1,2})?)\s*([A-Za-z]*)\s*")
SHARE: Final = re.compile(r"\s*([0-9]{0,30}\.?[0-9]{1,30})\s*[xX]\s*")
_NEGATIVE = re.compile(r"\s*-[0-9]{1,30}\s*")
MAX_VALUES: Final = 100_000


def parse_amount(name: str, value: Any) -> int:
    """Return a count (40M) or, where the name ends in ``bytes`` or ``memory``, a size (64MB, 2.4MiB).

    A size that its unit makes no whole number of bytes is rounded down.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    sizes = name.endswith(("bytes", "memory"))
    units = BYTES if sizes else COUNTS
    possible = "kB, MB, GB, TB, KiB, MiB, GiB, TiB" if sizes else "k, M, B or G, T"
    match = _NUMBER.fullmatch(str(value)) if isinstance(value, str | float) else None
    if str(value).startswith("-"):
        raise ValueError(f"{name} must be a number of at least 0, not {shown(value)}")
    if match is None or match[2].lower() not in units:
        hint = _other_unit(match, sizes)
        raise ValueError(
            f"{name} must be a number with an optional unit of {possible}, not {shown(value)}{hint}"
        )
    unit = units[match[2].lower()]
    amount = Decimal(match[1]) * unit
    if sizes and unit > 1:
        return int(amount)
    if amount != int(amount):
        raise ValueError(f"{name} must be a whole number, not {shown(value)}")
    return int(amount)


def _other_unit(match: re.Match[str] | None, sizes: bool) -> str:
    """Return a hint where bytes are given for a count, or a count for bytes."""
    unit = match[2].lower() if match else ""
    if match is None or unit not in (COUNTS if sizes else BYTES):
        return ""
    letter = match[2][0].upper()
    letter = letter if sizes or letter != "B" else ""
    return f"; did you mean {match[1]}{letter}{'B' if sizes else ''}?"


def parse_duration(name: str, value: Any) -> int:
    """Return seconds of 90, 90s, 30m, 1.5h or 2d."""
    match = _NUMBER.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if match is None or match[2].lower() not in SECONDS:
        raise ValueError(f"{name} must be a number with a unit of s, m, h, d, not {shown(value)}")
    return round(Decimal(match[1]) * SECONDS[match[2].lower()])


def parse_share(value: Any) -> str | None:
    """Return a share of something, 0.8x, without spaces; None for what is no share."""
    match = SHARE.fullmatch(value) if isinstance(value, str) else None
    return f"{match[1]}x" if match else None


def parse_integer(name: str, value: Any) -> int:
    """Return an integer: as ``parse_amount``, or a negative one."""
    if isinstance(value, str) and _NEGATIVE.fullmatch(value):
        return int(value)
    return parse_amount(name, value)


def parse_integers(name: str, value: Any, step: int = 1) -> list[int]:
    """Return the integers of 7, 2,4,8, LOW:HIGH (every ``step``) or LOW:HIGH:STEP, both ends included."""
    if isinstance(value, list | tuple):
        return [_integer(name, item) for item in value]
    if isinstance(value, int):
        return [_integer(name, value)]
    if not isinstance(value, str):
        raise ValueError(f"{name} must be integers, not {shown(value)}")
    if ":" not in value:
        return [_integer(name, part) for part in value.split(",")]
    parts = [_integer(name, part) for part in value.split(":")]
    if len(parts) not in (2, 3):
        raise ValueError(f"{name} must be LOW:HIGH or LOW:HIGH:STEP, not {shown(value)}")
    low, high, step = parts[0], parts[1], parts[2] if len(parts) == 3 else step
    if step < 1:
        raise ValueError(f"the step of {name} must be at least 1, not {step}")
    if low > high:
        raise ValueError(f"the range {shown(value)} of {name} is empty: {low} is above {high}")
    if (high - low) // step >= MAX_VALUES:
        raise ValueError(
            f"the range {shown(value)} of {name} has more than {MAX_VALUES} values; give a larger step"
        )
    return list(range(low, high + 1, step))


def parse_number(name: str, value: Any) -> float:
    """Return a finite number, an integer as it is."""
    number = value
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            raise ValueError(f"{name} must be a number, not {shown(value)}") from None
    if isinstance(number, bool) or not isinstance(number, int | float) or not is_finite(number):
        raise ValueError(f"{name} must be a finite number, not {shown(value)}")
    return number


def parse_percent(name: str, value: Any) -> float:
    """Return the number of 10% or .1."""
    if isinstance(value, str) and value.strip().endswith("%"):
        return parse_number(name, value.strip()[:-1]) / 100
    return parse_number(name, value)


def parse_numbers(name: str, value: Any, separator: str = ",") -> list[float]:
    """Return numbers from a list, or from text with separators."""
    parts = value if isinstance(value, list | tuple) else str(value).split(separator)
    return [parse_number(name, part) for part in parts]


def _integer(name: str, value: Any) -> int:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        with suppress(OverflowError, ValueError):
            number = int(value)
            if isinstance(value, str) or value == number:
                return number
    raise ValueError(f"{name} must consist of integers, not {shown(value)}")


def is_finite(number: int | float) -> bool:
    """Return whether a number is one of floating point, too."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


@dataclass(frozen=True)
class KeptUnits:
    """A setting that says how many units stay, by its flag: their name, and a share to give as an example."""

    flag: str
    units: str
    example: str

    def wanted(self, text: str, whole: int) -> tuple[Decimal, bool]:
        """Return the number of ``whole`` units for ``8``, ``0.5`` or ``0.5x``, and whether that is a share.

        A share need not come to a whole number. ``ValueError`` for what is neither.
        """
        share = parse_share(text) or parse_share(f"{text}x" if "." in text else None)
        try:
            part = Decimal(share[:-1]) if share else None
            exact = Decimal(parse_amount(self.flag, text)) if part is None else part * whole
        except ValueError:
            raise ValueError(
                f"{self.flag} takes a number of {self.units}, a share such as {self.example}, or auto, not "
                f"{text[:40]!r}"
            ) from None
        if part is not None and not 0 < part <= 1:
            raise ValueError(f"{self.flag} {text} is no share of the {self.units}: it must lie in 0 to 1")
        return exact, part is not None
