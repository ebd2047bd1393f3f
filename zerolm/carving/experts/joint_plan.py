"""The numbers of experts, and of neurons of each, to keep within budgets: those of least total loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from zerolm.statistics import TOLERANCE

CostsOf = Callable[[int, int], Mapping[str, int]]
"""Costs by name of a child with these numbers of experts in a layer, and of neurons of each."""


@dataclass(frozen=True)
class ExpertPlan:
    """The kept experts of a layer and neurons of each, with the predicted loss of all removed ones."""

    experts: int
    neurons: int
    loss: float


def between_corners(counts: Sequence[int], widths: Sequence[int], costs: CostsOf) -> CostsOf:
    """Return the costs of children by numbers of experts and of neurons from those of the extreme numbers.

    ``counts`` and ``widths`` ascend. All costs are linear in each number: tensors of an expert have a row or
    a column for each neuron, routers a row for each expert, and a token uses as many experts as before.
    """
    ends, sides = (counts[0], counts[-1]), (widths[0], widths[-1])
    corners = {(count, width): costs(count, width) for count in {*ends} for width in {*sides}}

    def costs_at(experts: int, neurons: int) -> Mapping[str, int]:
        least, most = (
            _between(neurons, sides, *(corners[count, width] for width in sides)) for count in ends
        )
        return _between(experts, ends, least, most)

    return costs_at


def _between(
    place: int, ends: tuple[int, int], first: Mapping[str, int], last: Mapping[str, int]
) -> dict[str, int]:
    """Return the costs at a place of lines through those at its ends, where all are integers."""
    start, stop = ends
    steps = max(1, stop - start)
    return {name: at + (last[name] - at) * (place - start) // steps for name, at in first.items()}


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
        plan = ExpertPlan(count, neurons, alone + by_neurons(count, neurons))
        if best is None or plan.loss < best.loss * (1 - TOLERANCE):
            best = plan
    if best is None or not np.isfinite(best.loss):
        raise ValueError("no number of experts and of their neurons is within the budgets")
    return best
