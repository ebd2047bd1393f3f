"""Exact plans where every layer has the same sizes at the same costs: costs then depend on totals only.

The total number of units of each kind over all layers fixes all costs. So one small dynamic programme over
the layers for each kind gives the best score for each total. One pass over all combinations of totals then
answers any budgets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.costs import COSTS
from zerolm.planning.part_costs import PARAMS, outer_sum
from zerolm.solvers.problem import Budgets
from zerolm.statistics import TOLERANCE

MAX_TOTALS: Final = 1 << 24
"""Largest number of combinations of totals; the programmes may take 64 times this number of steps."""


@dataclass(frozen=True, eq=False)
class Side:
    """One kind of units: ``sizes`` (s,), ascending, costs ``costs`` (s, 6), scores ``scores`` (layers, s)."""

    sizes: Ints
    costs: Ints
    scores: Floats

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
        return int(self.steps[-1]) * len(self.scores) + 1

    def step_cost(self) -> Ints | None:
        """Return the cost of a step, (6,); None where steps differ in cost."""
        rise, steps = self.costs - self.costs[0], self.steps[:, None]
        cost = rise[-1] // max(int(self.steps[-1]), 1)
        return cost if (rise == cost * steps).all() else None


def best_sizes(sides: Sequence[Side], fixed: Ints, budgets: Budgets) -> tuple[list[Ints], float] | None:
    """Return for each side the places in ``sizes`` of all layers, and the score; smallest of equals.

    ``fixed`` (6,) is the cost of the network with the smallest sizes. None where no sizes keep the budgets.
    """
    programmes = [_programme(side) for side in sides]
    scores = outer_sum([each.best for each in programmes])  # (totals of the first kind, of the second, ...)
    allowed = np.isfinite(scores)
    step_costs = [side.step_cost() for side in sides]
    params = np.zeros(())
    for column in range(len(COSTS)):
        steps = (0 if step_cost is None else int(step_cost[column]) for step_cost in step_costs)
        totals = zip(steps, programmes, strict=True)
        cost = fixed[column] + outer_sum([step * np.arange(len(each.best)) for step, each in totals])
        allowed &= (cost >= budgets.low[column]) & (cost <= budgets.high[column])
        params = cost if column == PARAMS else params
    if not allowed.any():
        return None
    top = scores[allowed].max()
    equal = allowed & (scores >= top - TOLERANCE * abs(top))
    at = np.unravel_index(np.argmin(np.where(equal, params, np.iinfo(np.int64).max)), scores.shape)
    return [each.picks(int(total)) for each, total in zip(programmes, at, strict=True)], float(scores[at])


def fits(sides: Sequence[Side]) -> bool:
    """Return whether costs depend on the totals alone, and the totals are few enough."""
    work = sum(side.totals * side.scores.size for side in sides)
    is_small = math.prod(side.totals for side in sides) <= MAX_TOTALS and work <= 64 * MAX_TOTALS
    return is_small and all(side.step_cost() is not None for side in sides)


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
    chosen = np.zeros((len(side.scores), side.totals), np.int64)
    for layer, scores in enumerate(side.scores):
        after = np.full(side.totals, -np.inf)
        for place, (step, value) in enumerate(zip(side.steps.tolist(), scores.tolist(), strict=True)):
            reached = best[: side.totals - step] + value
            better = reached > after[step:]
            after[step:][better] = reached[better]
            chosen[layer, step:][better] = place
        best = after
    return Programme(best, chosen, side.steps)
