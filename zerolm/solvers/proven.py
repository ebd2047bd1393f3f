"""Answers with a proof: exact dynamic programming for one limit, HiGHS for several."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Self

import numpy as np

from zerolm.architecture import Ints
from zerolm.solvers import milp
from zerolm.solvers.engine import PREFERENCE, Count
from zerolm.solvers.exact import FRONT_POINTS, Exact
from zerolm.solvers.problem import (
    Budgets,
    Picks,
    Problem,
    Solution,
    at_least,
    is_constant,
    proportion,
    single_limits,
)
from zerolm.solvers.relaxed import Relaxation
from zerolm.spaces import CandidateTable

TIES_LISTED = 2000
"""Tied shapes that are looked at one by one where they cannot be counted in closed form."""
FRONT_LEVELS = 12
"""Points of the front where each one takes a search with several budgets."""
MAX_TERMS = 1 << 16


class Proven:
    """Answers from exact dynamic programming where one cost is bounded, else from HiGHS."""

    optimal = complete = True
    ordered = False

    def __init__(self, problems: Sequence[Problem], budgets: Budgets, column: int, programmes: bool) -> None:
        self.problems, self.budgets, self.column = problems, budgets, column
        self.active = budgets.active(problems)
        self.programmes = programmes
        self.complete_front = not programmes
        self.seen: dict[tuple[int, Picks], Solution] = {}
        self.leading = _representatives(problems, bool(np.any(budgets.low > 0)))
        if programmes:
            self.relaxed = Relaxation(problems, budgets)
        else:
            limits = single_limits(problems, budgets, column)
            if limits is None:
                names = ", ".join(f"{side}_{budgets.names[i]}" for side, i in self.active)
                raise ValueError(f"method 'exact' takes one upper budget, not {names}; use milp or auto")
            self.exact = Exact(problems, column, limits)

    def in_order(self) -> Iterator[tuple[Solution, float]]:
        for solution, bound in self._stream(self.leading):
            self.seen[solution.problem, solution.picks] = solution
            yield solution, bound

    def front(self) -> list[Solution]:
        if not self.programmes:
            front = self.exact.front(self.leading, FRONT_POINTS)
            self.complete_front = len(front) < FRONT_POINTS
            return front
        least = self.extreme("max", self.column, self.budgets)
        top = next(self.in_order(), None)
        if least is None or top is None:
            return []
        points: list[Solution] = []
        for level in np.geomspace(max(least, 1), max(int(top[0].costs[self.column]), 1), FRONT_LEVELS):
            if points and level < points[-1].costs[self.column]:
                continue
            limit = min(max(least, round(level)), int(self.budgets.high[self.column]))
            budgets = self.budgets.replaced("max", self.column, limit)
            engine = self._within(budgets)
            best = next(engine.in_order(), None)
            if best and not (points and at_least(points[-1].score, best[0].score)):
                points.append(engine.cheapest_for(best[0].score))
        return points

    def cheapest_for(self, score: float) -> Solution:
        """Return the solution that scores ``score`` or more at the least cost in the engine's column."""
        close = [i for i in range(len(self.problems)) if self._reaches(i, score)]
        problems = [self.problems[i] for i in close]
        cheapest = milp.least_cost(problems, self.budgets, (self.column,), score)
        assert cheapest is not None  # a solution with this score was just found
        return replace(cheapest, problem=close[cheapest.problem])

    def count(self, threshold: float) -> Count:
        """Return a count in closed form, or among the solutions in order: exact if one below it came."""
        columns = [column for _, column in self.active]
        close = [p for i, p in enumerate(self.problems) if self._reaches(i, threshold)]
        counted = count_at_least(close, self.budgets, columns, threshold)
        if counted is not None:
            return Count(counted, True)
        if self.programmes:  # each one more would take a programme of its own
            solutions = list(self.seen.values())
        else:
            solutions = [s for s, _ in itertools.islice(self._stream(range(len(self.problems))), TIES_LISTED)]
        good = [s for s in solutions if at_least(s.score, threshold)]
        every = not self.programmes or len(self.leading) == len(self.problems)
        ended = not self.programmes and len(solutions) < TIES_LISTED
        ways = sum(self.problems[s.problem].ways(s.picks) for s in good)
        return Count(ways, every and (ended or len(good) < len(solutions)))

    def cheapest(self, threshold: float) -> Solution:
        close = [i for i in self.leading if self._reaches(i, threshold)]
        on_front = [] if self.programmes else [i for i in close if self._ordered_alike(i)]
        cheapest = [self._first_on_front(i, threshold) for i in on_front]
        rest = sorted(set(close) - set(on_front))
        other = milp.least_cost([self.problems[i] for i in rest], self.budgets, PREFERENCE, threshold)
        if other is not None:
            cheapest.append(replace(other, problem=rest[other.problem]))
        return min(cheapest, key=lambda s: (*s.costs[list(PREFERENCE)], -s.score))

    def peaks(self) -> dict[int, float]:
        bounds = {index: self._bound(index) for index in self.leading}
        return {index: bound for index, bound in bounds.items() if bound is not None}

    def extreme(self, side: str, column: int, budgets: Budgets) -> int | None:
        if not budgets.active(self.problems):
            lows, highs = zip(*(p.extreme_costs for p in self.problems), strict=True)
            return int(min(c[column] for c in lows) if side == "max" else max(c[column] for c in highs))
        if side == "max":
            least = milp.least_cost(self.problems, budgets, (column,))
            return None if least is None else int(least.costs[column])
        best: int | None = None
        for problem in sorted(self.problems, key=lambda p: -int(p.extreme_costs[1][column])):
            if best is not None and int(problem.extreme_costs[1][column]) <= best:
                break
            objective = [-table.costs[:, column].astype(float) for table, _ in problem.blocks]
            optimum = milp.minimise(problem, objective, budgets)
            if optimum is not None:
                value = int(problem.cost(optimum.picks)[column])
                best = value if best is None else max(best, value)
        return best

    def _stream(self, indices: Sequence[int]) -> Iterator[tuple[Solution, float]]:
        if self.programmes:
            return milp.in_order(self.problems, self.budgets, self.relaxed, indices)
        return ((s, s.score) for s in self.exact.in_order(indices))

    def _within(self, budgets: Budgets) -> Self:
        """Return the engine of programmes for other budgets: what is known of the problems stays known."""
        other = copy(self)
        other.budgets, other.active, other.seen = budgets, budgets.active(self.problems), {}
        other.relaxed = self.relaxed.within(budgets)
        return other

    def _bound(self, index: int) -> float | None:
        """Return the best score of a problem, or an upper bound of it, None where nothing fits."""
        if not self.programmes:
            return self.exact.best_score(index)
        bound = float(self.relaxed.bounds[index])
        return bound if bound > -math.inf else None

    def _ordered_alike(self, index: int) -> bool:
        """Return whether within a problem the cheapest solution is also the preferred one."""
        problem = self.problems[index]
        return all(
            is_constant(problem, cost) or proportion(problem, cost, self.column) is not None
            for cost in PREFERENCE
        )

    def _first_on_front(self, index: int, threshold: float) -> Solution:
        """The cheapest solution of a problem that scores ``threshold`` or more: a point of its front."""
        exact, problem = self.exact, self.problems[index]
        front = exact.points(problem)
        point = int(np.argmax(at_least(exact.value(problem, front.score), threshold)))
        (picks,) = exact.trace(problem, front.cost[[point]], front.score[[point]])
        return problem.solution(index, picks)

    def _reaches(self, index: int, threshold: float) -> bool:
        bound = self._bound(index)
        return bound is not None and bool(at_least(bound, threshold))


def _representatives(problems: Sequence[Problem], lower_bounds: bool) -> list[int]:
    """Return problems without those that only cost more than another, such as by a larger embedding.

    With lower bounds on costs a dearer one may be the only one that fits, so all stay.
    """
    if lower_bounds:
        return list(range(len(problems)))
    groups: dict[object, list[int]] = {}
    for index, problem in enumerate(problems):
        blocks = tuple((id(table), count) for table, count in problem.blocks)
        groups.setdefault((blocks, problem.factor, problem.offset), []).append(index)
    representatives: list[int] = []
    for group in groups.values():
        costs = np.array([problems[i].costs for i in group])
        least = np.flatnonzero((costs == costs.min(axis=0)).all(axis=1))
        representatives += [group[least[0]]] if len(least) else group
    return sorted(representatives)


def count_at_least(
    problems: Sequence[Problem], budgets: Budgets, columns: Sequence[int], threshold: float
) -> int | None:
    """Return the number of architectures with at least ``threshold`` within ``budgets`` on the cost
    ``columns``.

    None where a problem is not one block on a lattice.
    """
    total = 0
    for problem in problems:
        if len(problem.blocks) != 1:
            return None
        table, count = problem.blocks[0]
        lattice = lattice_of(table, columns)
        if lattice is None or (int(lattice.max()) * count) >= MAX_TERMS:
            return None
        low, high = int(np.argmin(lattice)), int(np.argmax(lattice))
        sums = np.arange(int(lattice.max()) * count + 1)
        span = max(int(lattice[high]), 1)
        slope = (table.score[high] - table.score[low]) / span
        score = problem.factor * (count * table.score[low] + slope * sums) + problem.offset
        good = at_least(score, threshold)
        for column in columns:
            step = int(table.costs[high, column] - table.costs[low, column]) // span
            cost = int(problem.costs[column]) + count * int(table.costs[low, column]) + step * sums
            good &= (cost >= budgets.low[column]) & (cost <= budgets.high[column])
        if good.any():
            ways = _power(tuple(lattice.tolist()), table.multiplicity, count)
            total += sum(ways[i] for i in np.flatnonzero(good))
    return total


def lattice_of(table: CandidateTable, columns: Sequence[int]) -> Ints | None:
    """Return integers (c,) from 0 of which the score and these costs are affine functions, or None."""
    costs = table.costs - table.costs.min(axis=0)
    varying = [column for column in columns if costs[:, column].any()]
    lead = varying[0] if varying else int(np.argmax(costs.max(axis=0)))
    step = int(np.gcd.reduce(costs[:, lead]))
    if not step:
        return np.zeros(len(table), np.int64) if np.ptp(table.score) == 0 else None
    lattice: Ints = costs[:, lead] // step
    span, high = int(lattice.max()), int(np.argmax(lattice))
    low = int(np.argmin(lattice))
    for column in varying:
        if (table.costs[:, column] - table.costs[low, column]).tolist() != (
            lattice * (int(table.costs[high, column] - table.costs[low, column]) // span)
        ).tolist():
            return None
    line = table.score[low] + (table.score[high] - table.score[low]) * (lattice / span)
    if np.abs(line - table.score).max() > 1e-12 * np.abs(table.score).max():
        return None
    return lattice


@lru_cache(maxsize=4096)
def _power(lattice: tuple[int, ...], multiplicity: tuple[int, ...], count: int) -> list[int]:
    """Return coefficients of (sum_j m_j x^lattice_j)^count, by one power of one big integer."""
    size = ((sum(multiplicity) ** count).bit_length() + 8) // 8
    packed = 0
    for place, ways in zip(lattice, multiplicity, strict=True):
        packed += ways << (8 * size * place)
    terms = max(lattice) * count + 1
    raw = pow(packed, count).to_bytes(size * terms + 1, "little")
    return [int.from_bytes(raw[size * i : size * (i + 1)], "little") for i in range(terms)]
