"""Numbers and texts as people read them: amounts with units, few digits, one length."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

LINES: Final = 15
CHARACTERS: Final = 1500
LINE: Final = 300
"""The most that ``repr`` of a result shows, and of each line."""


def show_amount(value: int, size: bool = False) -> str:
    """Return three digits and a unit: 39.7M, or 13.4 MB of a size."""
    units = ("", "k", "M", "G", "T", "P", "E")
    scaled, place = float(value), 0
    while abs(scaled) >= 999.5 and place < len(units) - 1:
        scaled, place = scaled / 1000, place + 1
    digits = f"{scaled:.3g}" if place else str(value)
    return f"{digits} {units[place]}B" if size else f"{digits}{units[place]}"


def show_cost(cost: str, value: int) -> str:
    return f"{value:,} us" if cost.endswith("_us") else show_amount(value, cost.endswith("bytes"))


def show_score(value: float) -> str:
    """Return a score with enough digits to distinguish near-ties."""
    return f"{value:,.0f}" if abs(value) >= 1e6 else f"{value:.7g}"


def show_count(value: int) -> str:
    """Return a count exactly up to ten millions, then as a power of ten."""
    return f"{value:,}" if value < 10**7 else f"{Decimal(value):.3e}".replace("e+", "e")


def show_number(value: float | None, form: str = ".3f") -> str:
    """Return a number, a dash where there is none."""
    return "-" if value is None or value != value else f"{value:{form}}"


def show_interval(low: float | None, high: float | None, form: str = ".3f") -> str:
    """Return an interval, nothing where there is none."""
    return "" if low is None or high is None else f"{low:{form}}..{high:{form}}"


def show_plain(value: object) -> str:
    """Return a setting or another fact as a page shows it, a float to four digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def show_share(value: float | None) -> str:
    """Return a share in per cent, a dash where there is none."""
    return "-" if value is None else f"{100 * value:.0f} %"


def span(values: Sequence[int]) -> str:
    """Return the least and the largest of some sizes, once where they are the same."""
    low, high = min(values, default=0), max(values, default=0)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def base_name(path: object) -> str:
    """Return the last part of a path, as a title names it."""
    return str(path).rstrip("/").rsplit("/", 1)[-1]


def sentence(text: str) -> str:
    """Return a remark as a sentence of its own; nothing of an empty one."""
    return f"{text[0].upper()}{text[1:].removesuffix('.')}." if text else ""


def short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def clipped(lines: Sequence[str]) -> str:
    """Return lines as one text of at most 15 lines and 1,500 characters that says what it leaves out."""
    shown: list[str] = []
    left = CHARACTERS - 40  # for the line that says so
    for line in lines[: LINES - (len(lines) > LINES)]:
        text = short(line, LINE)
        left -= len(text) + 1
        if left < 0:
            break
        shown.append(text)
    more = len(lines) - len(shown)
    return "\n".join([*shown, *([f"... and {more:,} more line{'s' * (more > 1)}"] if more else [])])
