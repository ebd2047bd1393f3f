"""How many experts, and how many neurons of each, stay within budgets: what loses least of both together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from zerolm.statistics import TOLERANCE


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


@dataclass(frozen=True)
class CornerCosts:
    """The costs of children with so many experts and neurons of each, from those with the least and most.

    ``corners`` are by (experts, neurons). All costs are linear in each of both: tensors of an expert have a
    row or a column for each neuron, routers a row for each expert, and a token meets as many as before.
    """

    experts: tuple[int, int]
    neurons: tuple[int, int]
    corners: Mapping[tuple[int, int], Mapping[str, int]]

    @classmethod
    def of(
        cls, counts: Sequence[int], widths: Sequence[int], costs: Callable[[int, int], Mapping[str, int]]
    ) -> CornerCosts:
        """Return the costs within these numbers, ascending, of which four are computed."""
        experts, neurons = (counts[0], counts[-1]), (widths[0], widths[-1])
        return cls(experts, neurons, {(e, n): costs(e, n) for e in set(experts) for n in set(neurons)})

    def __call__(self, experts: int, neurons: int) -> dict[str, int]:
        """Return the costs by name."""

        def beside(count: int, name: str) -> int:
            first, last = (self.corners[count, width][name] for width in self.neurons)
            return _between(neurons, self.neurons, first, last)

        least, most = self.experts
        names = next(iter(self.corners.values()))
        return {
            name: _between(experts, self.experts, beside(least, name), beside(most, name)) for name in names
        }


def _between(place: int, ends: tuple[int, int], first: int, last: int) -> int:
    """Return the value at a place of a line through whole numbers at its ends, where it is whole."""
    start, stop = ends
    return first if start == stop else first + (last - first) * (place - start) // (stop - start)


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
        if best is None or plan.lost < best.lost * (1 - TOLERANCE):
            best = plan
    if best is None or not np.isfinite(best.lost):
        raise ValueError("no number of experts and of their neurons is within the budgets")
    return best
