"""The search for the best number of tokens, which measures few of the possible ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from zerolm.carving.result import TriedSize

TINY: Final = 1e-12
MEASURED: Final = 3
"""Largest number of sizes whose other cuts are repaired and measured."""
LARGER: Final = 3
"""One in ``LARGER`` of the sizes of an interval are larger than the one that divides it: losses of fewer
tokens rise so steeply that a larger one excludes more."""


@dataclass(eq=False)
class SizeSearch:
    """The search for the best of some ``sizes`` of a vocabulary, the largest first.

    ``plan`` returns the best child of a size without the loss of fewer ``tokens``; ``ValueError`` where there
    is none. ``measure`` returns the loss of its other cuts after repair; None if the predicted one is
    accurate. Losses that differ by at most ``noise`` count as equal. ``tried`` are sizes with their losses,
    at first those that need no search.

    Fewer tokens lose more, and leave more room for all other units. So the loss of a size is at least that of
    the tokens of a larger one plus the other losses of a smaller one. Sizes that cannot be the best by this
    bound are not measured.
    """

    sizes: Sequence[int]
    plan: Callable[[int], TriedSize]
    tokens: Callable[[int], float]
    measure: Callable[[int], float | None]
    noise: float
    tried: dict[int, TriedSize]
    _plans: dict[int, TriedSize | ValueError] = field(default_factory=dict, init=False)
    _measured: set[int] = field(default_factory=set, init=False)
    _shares: dict[int, float] = field(default_factory=dict, init=False)

    def best(self) -> int:
        """Return the best size; ``ValueError`` where none is possible.

        Measured losses are a multiple of predicted ones that is similar for sizes nearby, so that each
        measurement corrects the other sizes, and may require further ones.
        """
        for _ in range(MEASURED):
            self._try()
            size = best_size(self._rows, self.noise)
            row = self.tried[size]
            if self._is_settled(row):
                return size
            loss = self.measure(size)
            self._measured.add(size)
            if loss is not None:
                self.tried[size] = replace(row, measured=loss)
                self._shares[size] = math.log(max(loss, TINY) / row.rest)
        return best_size([one for one in self.tried.values() if self._is_settled(one)], self.noise)

    def _is_settled(self, one: TriedSize) -> bool:
        """Return whether the loss of a size is final: nothing else is cut, or that was measured."""
        return one.rest == 0 or one.size in self._measured

    def _try(self) -> None:
        """Try sizes until no other one can be the best."""
        while True:
            before = len(self.tried)
            self._try_within(self.sizes[:1], 0.0, 0.0)  # the losses of other sizes are compared with it
            self._try_within(self.sizes[1:], 0.0, 0.0)
            if len(self.tried) == before:
                break
        if not self.tried:
            raise next(plan for plan in reversed(self._plans.values()) if isinstance(plan, ValueError))

    def _try_within(self, sizes: Sequence[int], tokens: float, rest: float) -> None:
        """Try sizes between two others: ``tokens`` is a loss of the larger, ``rest`` one of the smaller."""
        if not sizes or not self._may_be_best(sizes[0], tokens + rest):
            return
        place = (len(sizes) - 1) // LARGER
        size, larger, smaller = sizes[place], sizes[:place], sizes[place + 1 :]
        plan = self._planned(size)
        if plan is None or not self._may_be_best(size, tokens + self._expected(plan).loss):
            self._try_within(smaller, tokens, rest)  # larger ones have even less room for other units
            return
        if size not in self.tried:
            self.tried[size] = replace(plan, tokens=self.tokens(size))
        self._try_within(smaller, self.tried[size].tokens, rest)
        self._try_within(larger, tokens, self._expected(plan).loss)

    def _may_be_best(self, size: int, loss: float) -> bool:
        """Return whether a size that loses at least ``loss`` may be the best, by the sizes tried so far."""
        if not self.tried or size in self.tried:
            return True
        rows = self._rows
        best = best_size(rows, self.noise)
        if size > best:
            return loss <= min(one.loss for one in rows) + self.noise
        return loss < next(one.loss for one in rows if one.size == best) - self.noise

    def _planned(self, size: int) -> TriedSize | None:
        if size not in self._plans:
            try:
                self._plans[size] = self.plan(size)
            except ValueError as error:
                self._plans[size] = error
        plan = self._plans[size]
        return None if isinstance(plan, ValueError) else plan

    @property
    def _rows(self) -> list[TriedSize]:
        return [self._expected(one) for one in self.tried.values()]

    def _expected(self, one: TriedSize) -> TriedSize:
        """Return a size with its expected loss after repair, by the measured ones nearby."""
        if not self._shares or one.rest == 0 or one.measured is not None:
            return one
        sizes = sorted(self._shares)
        share = np.interp(one.size, sizes, [self._shares[size] for size in sizes])
        return replace(one, rest=one.rest * math.exp(share))


def best_size(tried: Sequence[TriedSize], noise: float) -> int:
    """Return the largest size whose loss exceeds the least by at most ``noise``."""
    most = min(one.loss for one in tried) + noise
    return max(one.size for one in tried if one.loss <= most)
