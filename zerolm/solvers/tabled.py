"""Scores from tables of choices, proven: of equal costs only the best sum counts.

A latency is a sum of many unequal numbers, and hardly two architectures have the same. So architectures that
are equal in all other costs are kept where none of them is as fast and has as high a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from zerolm.architecture import Bools, Floats, Ints
from zerolm.costs import COSTS
from zerolm.scores import ChoiceTable
from zerolm.solvers.problem import Budgets, Problem, Solution
from zerolm.solvers.sampling import Sample
from zerolm.spaces import Backbone, CandidateTable

PATHS_LIMIT: Final = 4_000_000
"""Largest number of different costs for this method."""


def best_of_costs(
    backbones: Sequence[Backbone], problems: Sequence[Problem], budgets: Budgets, table: ChoiceTable
) -> Sample:
    """Return the best architecture of each vector of costs within the upper budgets, scored by the table.

    Its weight rises with the sum and knows no latency, so that the best of all is among them. Every block has
    one layer. ``ValueError`` where there are too many different costs.
    """
    solutions: list[Solution] = []
    for index, (backbone, problem) in enumerate(zip(backbones, problems, strict=True)):
        columns = [
            np.array([table.term(place, choice) for choice in block.candidates.choices])
            for place, block in enumerate(backbone.blocks)
        ]
        sums, costs, picks = _merged(problem, columns, budgets)
        scores = table.weigh(sums, costs[:, : len(COSTS)])
        rows = zip(scores.tolist(), costs, picks.tolist(), strict=True)
        solutions += [Solution(index, tuple((i,) for i in row), score, cost) for score, cost, row in rows]
    return Sample.of(problems, solutions)


def _merged(problem: Problem, columns: Sequence[Floats], budgets: Budgets) -> tuple[Floats, Ints, Ints]:
    """Return the best sum (s,) of each vector of costs (s, k), and its candidates (s, layers)."""
    tables: list[CandidateTable] = [table for table, _ in problem.blocks]
    least, most = (
        np.cumsum([end(table.costs, axis=0) for table in reversed(tables)], axis=0)[::-1]
        for end in (np.min, np.max)
    )  # what the layers from each one on cost
    nothing = np.zeros_like(least[:1])
    rest = zip(np.concatenate([least[1:], nothing]), np.concatenate([most[1:], nothing]), strict=True)
    sums, costs, picks = np.zeros(1), problem.costs[None], np.zeros((1, 0), np.int64)
    for table, column, (less, more) in zip(tables, columns, rest, strict=True):
        count = len(table)
        costs = (costs[:, None] + table.costs[None]).reshape(-1, costs.shape[1])
        sums = np.add.outer(sums, column).ravel()
        fits = np.flatnonzero(((costs + less <= budgets.high) & (costs + more >= budgets.low)).all(axis=1))
        best = fits[_best(sums[fits], costs[fits], less, more, budgets)]
        if len(best) > PATHS_LIMIT:
            raise ValueError(f"paths have more than {PATHS_LIMIT} different costs; use evolution")
        picks = np.column_stack([picks[best // count], best % count])
        sums, costs = sums[best], costs[best]
    return sums, costs, picks


def _best(sums: Floats, costs: Ints, less: Ints, more: Ints, budgets: Budgets) -> Ints:
    """Return the rows of sums (s,) and costs (s, k) that no other row stands for, whatever comes.

    Layers to come cost ``less`` to ``more``. Of the same costs that is the best sum; of latencies that differ
    the other row is as fast, or as slow where a lower limit asks for that, and keeps the limit at that side.
    """
    alike = costs[:, : len(COSTS)]
    if costs.shape[1] == len(COSTS):
        return _leading(sums, alike, np.zeros(len(sums), np.int64), np.ones(len(sums), np.bool_))
    latency, low, high = costs[:, -1], budgets.low[-1], budgets.high[-1]
    rows = _leading(sums, alike, latency, latency + less[-1] >= low)
    if low > 0:
        slow = latency[rows]
        rows = rows[_leading(sums[rows], alike[rows], -slow, slow + more[-1] <= high)]
    return rows


def _leading(sums: Floats, alike: Ints, place: Ints, safe: Bools) -> Ints:
    """Return the rows (s,) with a higher sum than all ``safe`` rows at or before their place that are alike.

    Rows are ``alike`` (s, k) where all of that is equal; of those at the same place too, the best alone.
    """
    order = np.lexsort((-sums, place, *alike.T))
    sums, alike, place = sums[order], alike[order], place[order]
    starts = np.concatenate([[True], (alike[1:] != alike[:-1]).any(axis=1)])[: len(order)]
    rank = np.unique(sums, return_inverse=True)[1] + 1
    base = np.cumsum(starts) * (len(order) + 1)
    reached = np.maximum.accumulate(np.where(safe[order], base + rank, base))
    before = np.concatenate([[-1], reached])[: len(order)]
    first = starts | (np.diff(place, prepend=0) != 0)
    leading: Ints = order[first & (base + rank > before)]
    return leading
