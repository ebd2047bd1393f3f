"""The numbers of experts, and of neurons of each, to keep within budgets: those of least total loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from zerolm.statistics import TOLERANCE


@dataclass(frozen=True)
class ExpertPlan:
    """The kept experts of a layer and neurons of each, with the predicted losses of the removed ones."""

    experts: int
    neurons: int
    by_experts: float
    by_neurons: float

    @property
    def loss(self) -> float:
        return self.by_experts + self.by_neurons


@dataclass(frozen=True)
class CornerCosts:
    """The costs of children by numbers of experts and of neurons, interpolated between the extreme ones.

    ``corners`` are by (experts, neurons). All costs are linear in each number: tensors of an expert have a
    row or a column for each neuron, routers a row for each expert, and a token uses the same number of
    experts as before.
    """

    experts: tuple[int, int]
    neurons: tuple[int, int]
    corners: Mapping[tuple[int, int], Mapping[str, int]]

    @classmethod
    def of(
        cls, counts: Sequence[int], widths: Sequence[int], costs: Callable[[int, int], Mapping[str, int]]
    ) -> CornerCosts:
        """Return the costs within these numbers, ascending, from four computed ones."""
        experts, neurons = (counts[0], counts[-1]), (widths[0], widths[-1])
        return cls(experts, neurons, {(e, n): costs(e, n) for e in set(experts) for n in set(neurons)})

    def __call__(self, experts: int, neurons: int) -> dict[str, int]:
        """Return the costs by name."""

        def with_experts(count: int, name: str) -> int:
            first, last = (self.corners[count, width][name] for width in self.neurons)
            return _between(neurons, self.neurons, first, last)

        least, most = self.experts
        names = next(iter(self.corners.values()))
        return {
            name: _between(experts, self.experts, with_experts(least, name), with_experts(most, name))
            for name in names
        }


def _between(place: int, ends: tuple[int, int], first: int, last: int) -> int:
    """Return the value at a place of a line through integers at its ends, where the value is an integer."""
    start, stop = ends
    return first if start == stop else first + (last - first) * (place - start) // (stop - start)


def least_lost(
    counts: Sequence[int],
    most: Callable[[int], int | None],
    by_experts: Callable[[int], float],
    by_neurons: Callable[[int, int], float],
) -> ExpertPlan:
    """Return the plan of least loss; ties go to the most experts.

    ``counts`` are the possible numbers of experts, ascending; ``most`` returns the largest number of neurons
    within the budgets for a number of experts, None where there is none. More neurons never lose more, so no
    other number has to be tried. Fewer experts never lose less, so the search ends once their loss alone
    reaches that of the best plan. Raises ``ValueError`` where no plan is within the budgets.
    """
    best: ExpertPlan | None = None
    for count in reversed(counts):
        neurons = most(count)
        if neurons is None:
            continue
        alone = by_experts(count)
        if best is not None and alone >= best.loss:
            break
        plan = ExpertPlan(count, neurons, alone, by_neurons(count, neurons))
        if best is None or plan.loss < best.loss * (1 - TOLERANCE):
            best = plan
    if best is None or not np.isfinite(best.loss):
        raise ValueError("no number of experts and of their neurons is within the budgets")
    return best
