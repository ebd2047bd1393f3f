"""What the benchmarks share: a stopwatch, notes on progress, Markdown tables."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 10.0
"""Seconds after which a measurement is not repeated."""


def stopwatch(function: Callable[[], T], repeats: int = 1) -> tuple[float, T]:
    """Median seconds of ``repeats`` calls (no more once ``PATIENCE`` is spent), and what the last returned."""
    taken: list[float] = []
    while not taken or (len(taken) < repeats and sum(taken) < PATIENCE):
        start = time.perf_counter()
        result = function()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken), result


def note(text: str) -> None:
    """Progress, beside the results."""
    print(text, file=sys.stderr, flush=True)


def number(value: float) -> str:
    """Three significant digits; a power of ten where a ratio is beyond counting."""
    if value and not 1e-3 <= abs(value) < 1e6:
        digits, power = f"{value:.1e}".split("e")
        return f"{digits}e{int(power)}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(header: Sequence[str], rows: Sequence[Sequence[str | float]]) -> None:
    """A Markdown table on standard output: the first column left, the others right."""
    print("| " + " | ".join(header) + " |")
    print("|---|" + "---:|" * (len(header) - 1))
    for row in rows:
        print("| " + " | ".join(cell if isinstance(cell, str) else number(cell) for cell in row) + " |")
    print()
