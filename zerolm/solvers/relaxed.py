"""Upper bounds of scores under several budgets, by multipliers that all problems share.

A multiplier is the score of a unit of a limited cost. For multipliers p >= 0, no picks within the limits
score more than the largest sum of (score - p cost), plus p limit: weak duality, whatever p is. The best ones
of one problem are the dual of its linear relaxation; neighbours have nearly the same, so few are solved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Self

import numpy as np

from zerolm.architecture import Floats
from zerolm.solvers.problem import Budgets, Problem

BOUND_ROUNDING = 1e-12
"""Share of the terms of a bound that is added to it, for what floats round away."""
MULTIPLIERS_KEPT = 100
"""Multipliers that are remembered for other budgets, the last that were found."""


class Relaxation:
    """Upper bounds of the scores of several problems within budgets: ``bounds`` (p,), -inf where none fits.

    They only fall, with each call of ``tighten``; ``tight`` are the problems that it was called for.
    """

    def __init__(self, problems: Sequence[Problem], budgets: Budgets) -> None:
        self.problems = problems
        tables = list({id(table): table for problem in problems for table, _ in problem.blocks}.values())
        place = {id(table): i for i, table in enumerate(tables)}
        self._score = np.concatenate([table.score for table in tables])
        self._costs = np.concatenate([table.costs for table in tables]).astype(np.float64)
        self._starts = np.cumsum([0] + [len(table) for table in tables[:-1]])
        blocks = [
            (i, place[id(t)], count) for i, problem in enumerate(problems) for t, count in problem.blocks
        ]
        self._owner, self._table, self._count = np.array(blocks).T
        self._own = np.stack([problem.costs for problem in problems])
        self._extremes = [np.stack(ends) for ends in zip(*(p.extreme_costs for p in problems), strict=True)]
        self._factor = np.array([problem.factor for problem in problems])
        self._offset = np.array([problem.offset for problem in problems])
        self._bounded = deque[tuple[Floats, Floats]](maxlen=MULTIPLIERS_KEPT)
        """Signed multipliers (k,), negative where the least is limited, and the sums (p,) with them."""
        self._limit(budgets)
        self._add(np.zeros(len(budgets.names)))

    def within(self, budgets: Budgets) -> Self:
        """Return the bounds of the same problems within other budgets, by the multipliers that are known."""
        other = type(self).__new__(type(self))
        vars(other).update(vars(self), _bounded=self._bounded.copy())
        other._limit(budgets)
        for multipliers, sums in other._bounded:
            other._lower(multipliers, sums)
        return other

    def tighten(self, index: int) -> None:
        """Lower all bounds by the best multipliers of one problem; its own becomes that of its relaxation."""
        self.tight.add(index)
        multipliers = self._dual(index)
        if multipliers is None:
            self.bounds[index] = -np.inf
        else:
            self._add(multipliers)

    def _limit(self, budgets: Budgets) -> None:
        self.budgets, self.tight = budgets, set[int]()
        least, most = self._extremes
        fits = (least <= budgets.high).all(axis=1) & (most >= budgets.low).all(axis=1)
        self.bounds = np.where(fits, np.inf, -np.inf)

    def _add(self, multipliers: Floats) -> None:
        """Bound every problem; at multipliers (k,) > 0 the most of a cost is limited, at < 0 the least."""
        best = np.maximum.reduceat(self._score - self._costs @ multipliers, self._starts)
        chosen = self._count * best[self._table]
        sums = np.bincount(self._owner, weights=chosen, minlength=len(self.problems)).astype(np.float64)
        self._bounded.append((multipliers, sums))
        self._lower(multipliers, sums)

    def _lower(self, multipliers: Floats, sums: Floats) -> None:
        limit = np.where(multipliers < 0, self.budgets.low, self.budgets.high)
        limit_scores = np.where(multipliers != 0, (limit - self._own) * multipliers, 0.0)
        margin = BOUND_ROUNDING * (np.abs(sums) + np.abs(limit_scores).sum(axis=1))
        bound = self._factor * (sums + limit_scores.sum(axis=1) + margin) + self._offset
        self.bounds = np.minimum(self.bounds, bound)

    def _dual(self, index: int) -> Floats | None:
        """Return the multipliers (k,) of the best relaxation of a problem, None if it has no solution."""
        from scipy.optimize import linprog

        problem = self.problems[index]
        least, most = self._extremes[0][index], self._extremes[1][index]
        low, high = self.budgets.low, self.budgets.high
        upper, lower = np.flatnonzero(most > high), np.flatnonzero(least < low)
        multipliers = np.zeros(len(low))
        if not len(upper) + len(lower):
            return multipliers
        sizes = [len(table) for table, _ in problem.blocks]
        counts = np.array([count for _, count in problem.blocks])
        costs = np.concatenate([table.costs - table.least for table, _ in problem.blocks])
        score = np.concatenate([table.score for table, _ in problem.blocks])
        rows = np.concatenate([costs[:, upper], -costs[:, lower]], axis=1).T.astype(float)
        limits = np.concatenate([(high - least)[upper], (least - low)[lower]]).astype(float)
        units = np.maximum(np.abs(rows).max(axis=1), 1.0)
        scale = float(np.abs(score).max()) or 1.0
        solved = linprog(
            -score / scale,
            A_ub=rows / units[:, None],
            b_ub=limits / units,
            A_eq=(np.arange(len(counts))[:, None] == np.repeat(np.arange(len(counts)), sizes)).astype(float),
            b_eq=counts,
            method="highs",
        )
        if solved.status == 2:
            return None
        if solved.x is None:  # any multipliers bound the scores, if not as well
            return multipliers
        duals = np.maximum(-solved.ineqlin.marginals, 0.0) * scale / units
        multipliers[upper] += duals[: len(upper)]
        multipliers[lower] -= duals[len(upper) :]
        return multipliers
