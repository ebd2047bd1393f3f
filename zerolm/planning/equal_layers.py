"""Exact plans where every layer has the same sizes at the same costs: costs then depend on two totals only.

The total numbers of KV groups G and of neurons N over all layers fix all costs. So two small dynamic
programmes over the layers give the best score for each G and for each N. One pass over all pairs then answers
any budgets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.costs import COSTS
from zerolm.planning.part_costs import PARAMS
from zerolm.solvers.problem import Budgets
from zerolm.statistics import TOLERANCE

MAX_TOTALS: Final = 1 << 24
"""Largest number of pairs of totals for which this method is used; the number of programme steps may be 64
times as large."""


@dataclass(frozen=True, eq=False)
class Side:
    """One kind of units: ``sizes`` (s,), ascending, costs ``prices`` (s, 6), scores ``worth`` (layers, s)."""

    sizes: Ints
    prices: Ints
    worth: Floats

    @property
    def step(self) -> int:
        """Return the step between sizes: each size is the smallest one plus a multiple of it."""
        return int(np.gcd.reduce(np.diff(self.sizes))) if len(self.sizes) > 1 else 1

    @property
    def steps(self) -> Ints:
        return np.asarray((self.sizes - self.sizes[0]) // self.step, np.int64)

    @property
    def totals(self) -> int:
        """Return the number of possible totals of steps over all layers."""
        return int(self.steps[-1]) * len(self.worth) + 1

    def price(self) -> Ints | None:
        """Return the cost of a step, (6,); None where steps differ in cost."""
        rise, steps = self.prices - self.prices[0], self.steps[:, None]
        one = rise[-1] // max(int(self.steps[-1]), 1)
        return one if (rise == one * steps).all() else None


def best_pair(groups: Side, ffn: Side, fixed: Ints, budgets: Budgets) -> tuple[Ints, Ints, float] | None:
    """Return the places in ``sizes`` of each layer's groups and neurons, and the score; smallest of equals.

    ``fixed`` (6,) is the cost of the network with the smallest sizes. None where no sizes keep the budgets.
    """
    one, other = _programme(groups), _programme(ffn)
    worth = one.best[:, None] + other.best[None, :]  # (G, N)
    allowed = np.isfinite(worth)
    prices = [side.price() for side in (groups, ffn)]
    params = np.zeros(())
    for column in range(len(COSTS)):
        a, b = (0 if price is None else int(price[column]) for price in prices)
        cost = fixed[column] + a * np.arange(len(one.best))[:, None] + b * np.arange(len(other.best))
        allowed &= (cost >= budgets.low[column]) & (cost <= budgets.high[column])
        params = cost if column == PARAMS else params
    if not allowed.any():
        return None
    top = worth[allowed].max()
    equal = allowed & (worth >= top - TOLERANCE * abs(top))
    g, n = np.unravel_index(np.argmin(np.where(equal, params, np.iinfo(np.int64).max)), worth.shape)
    return one.picks(int(g)), other.picks(int(n)), float(worth[g, n])


def fits(groups: Side, ffn: Side) -> bool:
    """Return whether costs depend on the totals alone, and the totals are few enough."""
    work = (side.totals * side.worth.size for side in (groups, ffn))
    small = groups.totals * ffn.totals <= MAX_TOTALS and sum(work) <= 64 * MAX_TOTALS
    return small and groups.price() is not None and ffn.price() is not None


@dataclass(frozen=True, eq=False)
class Programme:
    """``best`` (totals,): the best score for each total of steps; ``chosen`` (layers, totals): last sizes."""

    best: Floats
    chosen: Ints
    steps: Ints

    def picks(self, total: int) -> Ints:
        """Return the place in ``sizes`` of each layer's size for a total."""
        places = np.zeros(len(self.chosen), np.int64)
        for layer in reversed(range(len(self.chosen))):
            places[layer] = self.chosen[layer, total]
            total -= int(self.steps[places[layer]])
        return places


def _programme(side: Side) -> Programme:
    best = np.full(side.totals, -np.inf)
    best[0] = 0.0
    chosen = np.zeros((len(side.worth), side.totals), np.int64)
    for layer, worth in enumerate(side.worth):
        after = np.full(side.totals, -np.inf)
        for place, (step, value) in enumerate(zip(side.steps.tolist(), worth.tolist(), strict=True)):
            reached = best[: side.totals - step] + value
            better = reached > after[step:]
            after[step:][better] = reached[better]
            chosen[layer, step:][better] = place
        best = after
    return Programme(best, chosen, side.steps)
