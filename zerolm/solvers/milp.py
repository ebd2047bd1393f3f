"""Several budgets at once: mixed-integer programmes over candidate counts, solved to proven optimality.

One integer a candidate says how often it is chosen, so that equal layers cost nothing extra. Every
solution is checked again in exact integers.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.solvers.problem import UNBOUNDED, Budgets, Picks, Problem, Solution, at_least
from zerolm.solvers.relaxed import Relaxation

OBJECTIVE_SCALE = 1e4
"""HiGHS stops at an absolute gap of 1e-6: objectives span this much, so that the gap is nothing."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """Picks that minimise an objective, and the bound that proves it: no picks do better than ``bound``."""

    picks: Picks
    value: float
    bound: float


def minimise(
    problem: Problem,
    objective: Sequence[Floats],
    budgets: Budgets,
    min_score: float | None = None,
    excluded: Sequence[Picks] = (),
) -> Optimum | None:
    """Return the picks with the least sum of ``objective`` (one array (c,) a block), or None.

    They keep ``budgets``, score ``min_score`` or more, and differ from all ``excluded`` picks.
    """
    excluded_picks = list(excluded)
    while True:
        optimum = _solve(problem, objective, budgets, min_score, excluded_picks)
        if optimum is None:
            return None
        good = bool(budgets.allow(problem.cost(optimum.picks)))
        if good and (min_score is None or at_least(problem.score(optimum.picks), min_score)):
            return optimum
        excluded_picks.append(optimum.picks)  # within the solver's tolerance, but not exactly


def _solve(
    problem: Problem,
    objective: Sequence[Floats],
    budgets: Budgets,
    min_score: float | None,
    excluded: Sequence[Picks],
) -> Optimum | None:
    from scipy.optimize import Bounds, LinearConstraint, milp

    counts = [count for _, count in problem.blocks]
    sizes = [len(table) for table, _ in problem.blocks]
    owner = np.repeat(np.arange(len(counts)), sizes)
    upper = np.repeat(counts, sizes).astype(float)
    base = np.array([values.min() for values in objective])
    flat = np.concatenate(objective) - base[owner]
    reach = float((flat * upper).max()) or 1.0
    binaries = sum(len(set(picks[b])) for picks in excluded for b in range(len(counts)))
    columns = len(owner) + binaries

    rows: list[Floats] = []
    lows: list[float] = []
    highs: list[float] = []

    def add(row: Floats, low: float, high: float) -> None:
        rows.append(np.concatenate([row, np.zeros(columns - len(row))]))
        lows.append(low)
        highs.append(high)

    for b, count in enumerate(counts):
        add((owner == b).astype(float), count, count)
    for row, low, high in _budget_rows(problem, budgets, owner):
        if low > high:
            return None
        add(row, low, high)
    if min_score is not None:
        score = np.concatenate([table.score for table, _ in problem.blocks])
        scale = float(np.abs(score * upper).max()) or 1.0
        needed = (min_score - 1e-9 * abs(min_score) - problem.offset) / problem.factor
        add(score / scale, needed / scale, np.inf)

    # picks != excluded: some candidate of the excluded picks is chosen less often than there.
    place = len(owner)
    for picks in excluded:
        first = place
        for b, chosen in enumerate(picks):
            start = int(np.searchsorted(owner, b))
            for candidate, times in Counter(chosen).items():
                row = np.zeros(columns)
                row[start + candidate] = 1.0
                row[place] = counts[b] - times + 1.0
                add(row, -np.inf, float(counts[b]))
                place += 1
        row = np.zeros(columns)
        row[first:place] = 1.0
        add(row, 1.0, np.inf)

    cost = np.concatenate([flat * (OBJECTIVE_SCALE / reach), np.zeros(binaries)])
    result = milp(
        cost,
        constraints=LinearConstraint(np.array(rows), np.array(lows), np.array(highs)),
        integrality=np.ones(columns),
        bounds=Bounds(0.0, np.concatenate([upper, np.ones(binaries)])),
        options={"mip_rel_gap": 0.0},
    )
    if result.status == 2:
        return None
    if result.x is None:
        raise RuntimeError(f"HiGHS found no answer: {result.message}")
    chosen_counts = np.rint(result.x[: len(owner)]).astype(int)
    picks = tuple(
        tuple(int(i) for i in np.repeat(np.arange(sizes[b]), chosen_counts[owner == b]))
        for b in range(len(counts))
    )
    value = math.fsum(float(objective[b][i]) for b, chosen in enumerate(picks) for i in chosen)
    constant = float(np.dot(base, counts))
    bound = constant + float(result.mip_dual_bound) * reach / OBJECTIVE_SCALE
    return Optimum(picks, value, min(value, bound))


def _budget_rows(problem: Problem, budgets: Budgets, owner: Ints) -> Iterator[tuple[Floats, float, float]]:
    """Yield one row a limit that can bind, in units of the greatest common divisor of its coefficients."""
    costs = np.concatenate([table.costs for table, _ in problem.blocks])
    least, most = problem.extreme_costs
    for column in range(costs.shape[1]):
        low, high = int(budgets.low[column]), int(budgets.high[column])
        if low <= least[column] and high >= most[column]:
            continue
        base = np.array([table.costs[:, column].min() for table, _ in problem.blocks])
        constant = int(least[column])
        row = costs[:, column] - base[owner]
        unit = int(np.gcd.reduce(row)) or 1
        yield (
            (row // unit).astype(float),
            float(-((constant - low) // unit)) if low > constant else -np.inf,
            float((high - constant) // unit) if high < UNBOUNDED else np.inf,
        )


def in_order(
    problems: Sequence[Problem],
    budgets: Budgets,
    relaxation: Relaxation | None = None,
    start: Sequence[int] | None = None,
) -> Iterator[tuple[Solution, float]]:
    """Yield all solutions, best first, each with the proven bound on any other that is still to come.

    ``relaxation`` bounds the problems within these budgets, and is tightened where that decides the order;
    problems whose bound is never reached are never solved.
    """
    relaxed = relaxation or Relaxation(problems, budgets)
    tick = itertools.count()
    heap: list[tuple[float, int, int, tuple[Picks, ...], Optimum | None]] = []

    def push(limit: float, index: int, excluded: tuple[Picks, ...], optimum: Optimum | None) -> None:
        if limit > -math.inf:
            heapq.heappush(heap, (-limit, next(tick), index, excluded, optimum))

    for index in range(len(problems)) if start is None else start:
        push(float(relaxed.bounds[index]), index, (), None)
    while heap:
        limit, _, index, excluded, optimum = heapq.heappop(heap)
        problem = problems[index]
        if optimum is None:
            if -limit > relaxed.bounds[index]:  # multipliers found since are lower
                push(float(relaxed.bounds[index]), index, excluded, None)
                continue
            if index not in relaxed.tight:
                relaxed.tighten(index)
                push(float(relaxed.bounds[index]), index, excluded, None)
                continue
            objective = [-table.score for table, _ in problem.blocks]
            optimum = minimise(problem, objective, budgets, excluded=excluded)
            if optimum is not None:
                push(problem.score(optimum.picks), index, excluded, optimum)
            continue
        score = problem.score(optimum.picks)
        proven = problem.factor * -optimum.bound + problem.offset
        yield problem.solution(index, optimum.picks), max(score, proven)
        push(score, index, (*excluded, optimum.picks), None)


def least_cost(
    problems: Sequence[Problem], budgets: Budgets, columns: Sequence[int], min_score: float | None = None
) -> Solution | None:
    """Return the solution of lexicographically least costs in ``columns`` that scores at least so much."""
    order = sorted(range(len(problems)), key=lambda i: tuple(problems[i].extreme_costs[0][list(columns)]))
    best: Solution | None = None
    for index in order:
        problem = problems[index]
        if best is not None and problem.extreme_costs[0][columns[0]] > best.costs[columns[0]]:
            break
        limits, optimum = budgets, None
        if best is not None:
            cap = min(budgets.high[columns[0]], best.costs[columns[0]])
            limits = budgets.replaced("max", columns[0], int(cap))
        for column in columns:
            objective = [table.costs[:, column].astype(float) for table, _ in problem.blocks]
            optimum = minimise(problem, objective, limits, min_score)
            if optimum is None:
                break
            limits = limits.replaced("max", column, int(problem.cost(optimum.picks)[column]))
        if optimum is None:
            continue
        solution, key = problem.solution(index, optimum.picks), list(columns)
        if best is None or solution.costs[key].tolist() < best.costs[key].tolist():
            best = solution
    return best
