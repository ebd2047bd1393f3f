"""Seconds by what they were spent on."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Clock:
    """Counts seconds by name: of this process's processors, on a GPU those that pass.

    What runs inside of another is counted under its own name alone.
    """

    def __init__(self, device: torch.device) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._device, self._inside = device, [0.0]

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        """Within, seconds go to ``name``."""
        start = self._now()
        self._inside.append(0.0)
        try:
            yield
        finally:
            spent = self._now() - start
            self.seconds[name] += spent - self._inside.pop()
            self._inside[-1] += spent

    def _now(self) -> float:
        if self._device.type != "cuda":
            return time.process_time()
        torch.cuda.synchronize(self._device)
        return time.perf_counter()
