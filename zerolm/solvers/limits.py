"""Several budgets that amount to one limit."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from zerolm.solvers.problem import UNBOUNDED, Budgets, Problem


def single_limits(problems: Sequence[Problem], budgets: Budgets, column: int) -> list[int] | None:
    """Return the budgets as one upper limit on ``column`` for each problem, or None where they are more.

    Within a backbone several costs often are one: all grow in the same proportion from candidate to
    candidate. Then the tightest limit stands for all. A problem that cannot keep a limit gets -1.
    """
    limits = []
    for problem in problems:
        limit = _single_limit(problem, budgets, column)
        if limit is None:
            return None
        limits.append(limit)
    return limits


def _single_limit(problem: Problem, budgets: Budgets, column: int) -> int | None:
    least, most = problem.extreme_costs
    if np.any(least > budgets.high) or np.any(most < budgets.low):
        return -1
    if np.any(least < budgets.low):
        return None
    limit = int(budgets.high[column])
    for other in np.flatnonzero(most > budgets.high):
        if other == column:
            continue
        slope = proportion(problem, int(other), column)
        if slope is None:
            return None
        room = int(budgets.high[other] - least[other])
        limit = min(limit, int(least[column]) + room * slope.denominator // slope.numerator)
    return limit


def is_constant(problem: Problem, column: int) -> bool:
    """Return whether a cost is the same for all candidates of each block."""
    return not any(np.ptp(table.costs[:, column]) for table, _ in problem.blocks)


def proportion(problem: Problem, of: int, to: int) -> Fraction | None:
    """Return the one positive ratio in which two costs grow from candidate to candidate, if there is one."""
    grown = [table.costs - table.costs.min(axis=0) for table, _ in problem.blocks]
    x, y = (np.concatenate([g[:, c] for g in grown]) for c in (to, of))
    top = int(np.argmax(x))
    if not x[top] or not y[top]:
        return None
    slope = Fraction(int(y[top]), int(x[top]))
    proportional = np.array_equal(y.astype(object) * slope.denominator, x.astype(object) * slope.numerator)
    return slope if proportional else None


def bounded_columns(budgets: Budgets) -> list[int]:
    """Return cost columns with an upper budget."""
    return np.flatnonzero(budgets.high < UNBOUNDED).tolist()
