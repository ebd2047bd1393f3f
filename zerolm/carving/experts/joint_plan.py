"""How many experts, and how many neurons of each, stay within budgets: what loses least of both together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ExpertPlan:
    """Experts of a layer that stay and neurons of each, with what those that leave are foretold to lose."""

    experts: int
    neurons: int
    by_experts: float
    by_neurons: float

    @property
    def lost(self) -> float:
        return self.by_experts + self.by_neurons


def least_lost(
    counts: Sequence[int],
    most: Callable[[int], int | None],
    by_experts: Callable[[int], float],
    by_neurons: Callable[[int, int], float],
) -> ExpertPlan:
    """Return the plan that loses least; of equals that with the most experts.

    ``counts`` are the numbers of experts that may stay, ascending; ``most`` tells the most neurons of so many
    experts within the budgets, None where there are none. More neurons lose no more, so that no other number
    has to be tried; fewer experts lose no less, so that none are tried once these alone lose as much as the
    best plan. ``ValueError`` where no plan is within the budgets.
    """
    best: ExpertPlan | None = None
    for count in reversed(counts):
        neurons = most(count)
        if neurons is None:
            continue
        alone = by_experts(count)
        if best is not None and alone >= best.lost:
            break
        plan = ExpertPlan(count, neurons, alone, by_neurons(count, neurons))
        if best is None or plan.lost < best.lost:
            best = plan
    if best is None or not np.isfinite(best.lost):
        raise ValueError("no number of experts and of their neurons is within the budgets")
    return best
