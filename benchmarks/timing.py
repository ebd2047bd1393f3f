"""What the benchmarks share: a stopwatch, notes on progress, Markdown tables."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
PACKAGES = ("numpy", "scipy", "pymoo")
PATIENCE = 10.0
"""Seconds after which a measurement is not repeated."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def processor() -> str:
    """Return the name of the processor, as the system has it."""
    with suppress(OSError, UnicodeDecodeError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return " ".join(value.split())
    return platform.processor() or platform.machine() or "not named"


def machine() -> str:
    """Processor, cores, versions and date."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return (
        f"{processor()}, {os.cpu_count()} cores; "
        f"Python {platform.python_version()}, {versions}; "
        f"{datetime.date.today().isoformat()}"
    )


def one_thread() -> None:
    """Start this script again with one thread for linear algebra, unless it has but one.

    Threads that wait for a core taken by other work would be charged to whoever uses them.
    """
    if not ONE_THREAD.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})


def stopwatch(
    function: Callable[[], T], repeats: int = 1, clock: Callable[[], float] = time.process_time
) -> tuple[float, T]:
    """Median seconds of ``repeats`` calls, fewer once ``PATIENCE`` is spent, and what the last returned.

    By default those that the processor spent on this process: other work on the machine does not count.
    """
    taken: list[float] = []
    while not taken or (len(taken) < repeats and sum(taken) < PATIENCE):
        start = clock()
        result = function()
        taken.append(clock() - start)
    return statistics.median(taken), result


def note(text: str, done: int = 0, of: int = 0, /) -> None:
    """Progress, beside the results."""
    print(f"{text} {done}/{of}" if of else text, file=sys.stderr, flush=True)


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
