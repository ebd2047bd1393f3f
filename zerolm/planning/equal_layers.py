"""Exact plans where every layer has the same sizes at the same prices: costs then depend on two totals only.

What a network keeps in all layers together, G groups and N neurons, fixes all its costs; so the best worth
for each G and for each N (two small dynamic programmes over the layers) and one look at all pairs answer any
number of budgets.
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
"""Pairs of totals, and steps of a programme, up to which this is worth it."""


@dataclass(frozen=True, eq=False)
class Side:
    """One kind of units: ``sizes`` (s,), ascending, cost ``prices`` (s, 5); ``worth`` (layers, s)."""

    sizes: Ints
    prices: Ints
    worth: Floats

    @property
    def step(self) -> int:
        """Return the step between sizes: they are the least one and steps of this."""
        return int(np.gcd.reduce(np.diff(self.sizes))) if len(self.sizes) > 1 else 1

    @property
    def steps(self) -> Ints:
        return np.asarray((self.sizes - self.sizes[0]) // self.step, np.int64)

    @property
    def totals(self) -> int:
        """Return how many totals of steps there are over all layers."""
        return int(self.steps[-1]) * len(self.worth) + 1

    def price(self) -> Ints | None:
        """Return the price of a step, (5,); None where steps differ."""
        rise, steps = self.prices - self.prices[0], self.steps[:, None]
        one = rise[-1] // max(int(self.steps[-1]), 1)
        return one if (rise == one * steps).all() else None


def best_pair(groups: Side, ffn: Side, fixed: Ints, budgets: Budgets) -> tuple[Ints, Ints, float] | None:
    """Return the sizes of each layer, by place in ``sizes``, and their worth; of equals the smallest.

    ``fixed`` (5,) is what the network costs with the least of everything. None where nothing keeps the
    budgets.
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
    """Whether costs depend on the totals alone, and there are few enough of them."""
    work = (side.totals * side.worth.size for side in (groups, ffn))
    small = groups.totals * ffn.totals <= MAX_TOTALS and sum(work) <= 64 * MAX_TOTALS
    return small and groups.price() is not None and ffn.price() is not None


@dataclass(frozen=True, eq=False)
class Programme:
    """``best`` (totals,): the most worth of each total of steps; ``chosen`` (layers, totals): last sizes."""

    best: Floats
    chosen: Ints
    steps: Ints

    def picks(self, total: int) -> Ints:
        """Return the place of each layer's size for a total."""
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
