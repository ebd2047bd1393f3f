"""How passes are run, what they are asked for, what their seconds go to, and moments of tensors."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from zerolm.lab.zero_cost.result import Mode, Upstream
from zerolm.networks.network import Network, Tap

WORD: Final = 64
"""Samples whose bits fill one int64."""


@dataclass(frozen=True)
class Protocol:
    """``sane`` is what the papers mean, in evaluation mode; ``faithful`` what released code computes.

    ``upstream`` is what gradients come from: the loss of the task, or the sum of the final hidden states
    (``ones``), which is constant behind a layer norm. The batch is passed in ``parts`` micro-batches.
    ``seed`` draws dropout masks (faithful mode trains), Gaussian inputs and random directions.
    """

    mode: Mode = "sane"
    upstream: Upstream = "task"
    parts: int = 8
    seed: int = 0

    @property
    def faithful(self) -> bool:
        return self.mode == "faithful"


@dataclass(frozen=True)
class Look:
    """A need of the forward pass that is declared next to its proxy: numbers of tensors on their way.

    ``reduce(tensor)`` gives numbers of each tensor at ``taps(network)``, such as hidden states (b, t, d);
    ``passes.looked(look)`` has their means over micro-batches, tap by tap. Two of one ``name`` are the same.
    """

    name: str
    taps: Callable[[Network], Sequence[Tap]] = field(compare=False)
    reduce: Callable[[Tensor], Sequence[float]] = field(compare=False)

    def __str__(self) -> str:
        return self.name


Need = str | Look
"""A name of ``NEEDS``, or what a proxy looks at itself."""


@dataclass
class Spread:
    """The mean and the population variance of tensors that come one by one, by Welford's recurrence."""

    count: int = 0
    mean: Any = 0.0
    squares: Any = 0.0

    def add(self, x: Tensor) -> None:
        self.count += 1
        step = x - self.mean
        self.mean += step / self.count
        self.squares += step * (x - self.mean)

    @property
    def variance(self) -> Tensor:
        variance: Tensor = self.squares / self.count
        return variance


@dataclass
class Moments:
    """Over the gradients g (outputs, inputs) of micro-batches: those of g, and of |g|."""

    signed: Spread = field(default_factory=Spread)
    absolute: Spread = field(default_factory=Spread)

    def add(self, g: Tensor) -> None:
        self.signed.add(g)
        self.absolute.add(g.abs())


@dataclass
class RowSums:
    """The number of rows (n, d), their sum (d,) and that of their squares (d, d), in float64."""

    count: int = 0
    total: Any = 0.0
    second: Any = 0.0

    def add(self, states: Tensor) -> None:
        """Add the rows of states (..., d)."""
        rows = states.detach().flatten(0, -2).double()
        self.count += len(rows)
        self.total = self.total + rows.sum(0)
        self.second = self.second + rows.T @ rows


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
