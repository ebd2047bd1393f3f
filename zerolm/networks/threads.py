"""How many threads multiply matrices: as many as processors are idle when work starts (torch)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import torch

SMALL: Final = 1 << 24
"""Models of fewer parameters run on one thread: their products are too small to divide."""
SAMPLED: Final = 0.2
"""Seconds over which the load of the processors is measured."""
LOAD: Final = Path("/proc/stat")
IDLE_FIELDS: Final = (3, 4)
"""The columns of ``/proc/stat`` that count idle time: idle, and waiting for a disk."""


def use_idle_processors(parameters: int) -> int:
    """Set the number of threads for a model of this size, and return it.

    A thread that shares its processor with other work holds up all the others. A number that the environment
    sets (``OMP_NUM_THREADS``) is left as it is.
    """
    if "OMP_NUM_THREADS" in os.environ:
        return torch.get_num_threads()
    most = torch.get_num_threads()
    threads = 1 if parameters < SMALL or most == 1 else min(most, max(1, round(idle_processors())))
    torch.set_num_threads(threads)
    return threads


def idle_processors(seconds: float = SAMPLED) -> float:
    """Return the number of idle processors, as a mean over some seconds; all where that cannot be
    measured."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not LOAD.exists():
        return float(usable)
    before = _times()
    time.sleep(seconds)
    idle, total = (after - was for after, was in zip(_times(), before, strict=True))
    count = os.cpu_count() or 1
    return max(0.0, min(float(usable), idle / max(total, 1) * count - (count - usable)))


def _times() -> tuple[int, int]:
    """Return the idle time and all time of all processors since the start, in ticks."""
    ticks = [int(field) for field in LOAD.read_text().splitlines()[0].split()[1:9]]
    return sum(ticks[field] for field in IDLE_FIELDS), sum(ticks)
