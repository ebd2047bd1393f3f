"""Scores told by tables of choices, proven: of the same costs only the best sum counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.scores import ChoiceTable
from zerolm.solvers.engine import Count, StateList
from zerolm.solvers.problem import Budgets, Problem, Solution
from zerolm.solvers.sampling import Sample
from zerolm.spaces import Backbone, CandidateTable

LIMIT: Final = 4_000_000
"""Different costs up to which architectures are told by them."""


class BestOfCosts(StateList):
    """Answers from the best architecture of each vector of costs; of those there may be more that tie."""

    def count(self, threshold: float) -> Count:
        return Count(super().count(threshold).value, False)


def best_of_costs(
    backbones: Sequence[Backbone], problems: Sequence[Problem], budgets: Budgets, table: ChoiceTable
) -> Sample:
    """Return the best architecture of each vector of costs within the upper budgets, scored by the table.

    Its weight rises with the sum, so that the best of all is among them. Every block has one layer.
    ``ValueError`` where there are too many different costs.
    """
    solutions: list[Solution] = []
    for index, (backbone, problem) in enumerate(zip(backbones, problems, strict=True)):
        columns = [
            np.array([table.term(place, choice) for choice in block.candidates.choices])
            for place, block in enumerate(backbone.blocks)
        ]
        sums, costs, picks = _merged(problem, columns, budgets)
        scores = table.weigh(sums, costs)
        rows = zip(scores.tolist(), costs, picks.tolist(), strict=True)
        solutions += [Solution(index, tuple((i,) for i in row), score, cost) for score, cost, row in rows]
    return Sample.of(problems, solutions)


def _merged(problem: Problem, columns: Sequence[Floats], budgets: Budgets) -> tuple[Floats, Ints, Ints]:
    """Return the best sum (s,) of each vector of costs (s, k), and its candidates (s, layers)."""
    tables: list[CandidateTable] = [table for table, _ in problem.blocks]
    least = np.cumsum([table.costs.min(axis=0) for table in reversed(tables)], axis=0)[::-1]
    rest = np.concatenate([least[1:], np.zeros_like(least[:1])])  # what the layers to come cost at least
    sums, costs, picks = np.zeros(1), problem.costs[None], np.zeros((1, 0), np.int64)
    for table, column, more in zip(tables, columns, rest, strict=True):
        count = len(table)
        costs = (costs[:, None] + table.costs[None]).reshape(-1, costs.shape[1])
        sums = np.add.outer(sums, column).ravel()
        fits = np.flatnonzero((costs + more <= budgets.high).all(axis=1))
        _, group = np.unique(costs[fits], axis=0, return_inverse=True)
        order = np.lexsort((-sums[fits], group.ravel()))
        first = np.diff(group.ravel()[order], prepend=-1) > 0
        best = fits[order[first]]
        if len(best) > LIMIT:
            raise ValueError(f"paths have more than {LIMIT} different costs; use evolution")
        picks = np.column_stack([picks[best // count], best % count])
        sums, costs = sums[best], costs[best]
    return sums, costs, picks
