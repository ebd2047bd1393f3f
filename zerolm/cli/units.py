"""Numbers as people type them: 40M parameters, 64MB, ranges 4:32 and 256:2048:64."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

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
_NUMBER = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE]\+?[0-9]{1,2})?)\s*([A-Za-z]*)\s*")
MAX_VALUES: Final = 100_000
MAX_ALPHA: Final = 1e6
"""Far beyond any alpha that ranks otherwise than its neighbours, and far from overflow."""


def parse_amount(name: str, value: Any) -> int:
    """A count (40M) or, where the name ends in ``bytes``, a size (64MB, 64MiB), as an integer."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    sizes = name.endswith("bytes")
    units = BYTES if sizes else COUNTS
    shown = "kB, MB, GB, TB, KiB, MiB, GiB, TiB" if sizes else "k, M, G, T"
    match = _NUMBER.fullmatch(str(value))
    if match is None or match[2].lower() not in units:
        raise ValueError(f"{name} must be a number with an optional unit of {shown}, not {str(value)[:80]!r}")
    amount = Decimal(match[1]) * units[match[2].lower()]
    if amount != int(amount):
        raise ValueError(f"{name} must be a whole number, not {str(value)!r}")
    return int(amount)


def parse_integers(name: str, value: Any, step: int = 1) -> list[int]:
    """Integers from ``7``, ``2,4,8``, ``LOW:HIGH`` (every ``step``) or ``LOW:HIGH:STEP``, both ends in."""
    if isinstance(value, list | tuple):
        return [_integer(name, item) for item in value]
    if isinstance(value, int):
        return [_integer(name, value)]
    text = str(value)
    if ":" not in text:
        return [_integer(name, part) for part in text.split(",")]
    parts = [_integer(name, part) for part in text.split(":")]
    if len(parts) not in (2, 3):
        raise ValueError(f"{name} must be LOW:HIGH or LOW:HIGH:STEP, not {text!r}")
    low, high, step = parts[0], parts[1], parts[2] if len(parts) == 3 else step
    if step < 1:
        raise ValueError(f"the step of {name} must be at least 1, not {step}")
    if low > high:
        raise ValueError(f"the range {text!r} of {name} is empty: {low} is above {high}")
    if (high - low) // step >= MAX_VALUES:
        raise ValueError(
            f"the range {text!r} of {name} has more than {MAX_VALUES} values; give a larger step"
        )
    return list(range(low, high + 1, step))


def parse_interval(name: str, value: Any) -> list[float]:
    """Two numbers from ``LOW:HIGH``."""
    parts = value if isinstance(value, list | tuple) else str(value).split(":")
    try:
        numbers = [float(part) for part in parts]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != 2 or not all(map(math.isfinite, numbers)):
        raise ValueError(f"{name} must be two numbers LOW:HIGH, not {str(value)!r}")
    return numbers


def parse_numbers(name: str, values: Sequence[str]) -> list[float]:
    """Finite numbers."""
    numbers = []
    for value in values:
        try:
            numbers.append(float(value))
        except ValueError:
            raise ValueError(f"{name} must be a number, not {value!r}") from None
        if not math.isfinite(numbers[-1]):
            raise ValueError(f"{name} must be a finite number, not {value}")
    return numbers


def parse_alphas(values: Sequence[str]) -> list[float]:
    """Alphas of ``zerolm``."""
    alphas = parse_numbers("alpha", values)
    for alpha in alphas:
        if abs(alpha) > MAX_ALPHA:
            raise ValueError(f"alpha must lie from -{MAX_ALPHA:g} to {MAX_ALPHA:g}, not at {alpha:g}")
    return alphas


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(f"{name} must consist of integers, not {value!r}")
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must consist of integers, not {str(value)!r}") from None
