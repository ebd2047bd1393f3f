"""The proven and the sampled ways to answer the same questions of a search."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.costs import COSTS
from zerolm.solvers import milp
from zerolm.solvers.counting import count_at_least
from zerolm.solvers.exact import Exact, thinned
from zerolm.solvers.exhaustive import States, Ways
from zerolm.solvers.problem import UNBOUNDED, Budgets, Problem, Solution, at_least
from zerolm.solvers.sampling import Sample
from zerolm.statistics import tie_ranks

KV_BYTES, MACS, PARAMS = COSTS.index("kv_bytes"), COSTS.index("macs"), COSTS.index("params")
PREFERENCE = (KV_BYTES, MACS, PARAMS)
"""What decides among equals, in this order."""
COUNTED = 2000
"""Tied shapes that are looked at one by one where they cannot be counted in closed form."""
LEVELS = 12
"""Points of the front where each one takes a search with several budgets."""
FRONT_POINTS = 4000
"""Points of a front up to which it is given whole."""


@dataclass(frozen=True, slots=True)
class Count:
    """A number of architectures, exact or a proven lower bound."""

    value: int
    exact: bool


class Engine(Protocol):
    """Answers within the budgets that it was made for."""

    optimal: bool
    complete_front: bool

    def in_order(self) -> Iterator[tuple[Solution, float]]:
        """Solutions best first, each with a proven upper bound on it and all that follow."""

    def front(self) -> list[Solution]:
        """The Pareto front of score against the engine's cost column, cheapest first."""

    def count(self, threshold: float) -> Count:
        """Architectures that score ``threshold`` or more."""

    def cheapest(self, threshold: float) -> Solution:
        """Of those that score ``threshold`` or more (there are some): the least KV cache, then the fewest
        MACs, then the fewest parameters."""

    def peaks(self) -> dict[int, float]:
        """The best score of each problem that has one; an upper bound where the front is not complete."""

    def extreme(self, side: str, column: int, budgets: Budgets) -> int | None:
        """The least (side "max") or largest ("min") cost in ``column`` within ``budgets``."""


class Pool:
    """Answers from a list of states: of all of them (proven), or of a sample."""

    def __init__(self, states: States | Sample, budgets: Budgets, column: int, optimal: bool) -> None:
        self.states, self.column, self.optimal = states, column, optimal
        self.budgets, self.complete_front = budgets, True
        self.kept = np.flatnonzero(budgets.allow(states.costs))
        self.score: Floats = states.score[self.kept]
        self.costs: Ints = states.costs[self.kept]
        self.ways: Ways = states.ways[self.kept]

    def in_order(self) -> Iterator[tuple[Solution, float]]:
        ranks = tie_ranks(self.score)
        order = np.lexsort((self.costs[:, PARAMS], self.costs[:, MACS], self.costs[:, KV_BYTES], -ranks))
        for i in order:
            yield self._solution(int(i)), float(self.score[i])

    def front(self) -> list[Solution]:
        cost = self.costs[:, self.column]
        order = np.lexsort((-self.score, cost))
        if not len(order):
            return []
        score = self.score[order]
        running = np.maximum.accumulate(score)
        higher = score[1:] > running[:-1] + 1e-12 * np.abs(running[:-1])
        points = order[np.concatenate([[True], higher])]
        self.complete_front = len(points) <= FRONT_POINTS
        return [self._solution(int(i)) for i in thinned(points, FRONT_POINTS)]

    def count(self, threshold: float) -> Count:
        ways = self.ways[at_least(self.score, threshold)]
        if ways.dtype != object and float(ways.sum(dtype=np.float64)) > 2**62:
            ways = ways.astype(object)
        return Count(int(ways.sum()), self.optimal)

    def cheapest(self, threshold: float) -> Solution:
        close = np.flatnonzero(at_least(self.score, threshold))
        keys = [self.costs[close, column] for column in reversed(PREFERENCE)]
        return self._solution(int(close[np.lexsort((-self.score[close], *keys))[0]]))

    def peaks(self) -> dict[int, float]:
        peaks: dict[int, float] = {}
        for index, score in zip(self.states.problem[self.kept].tolist(), self.score.tolist(), strict=True):
            peaks[index] = max(score, peaks.get(index, score))
        return peaks

    def extreme(self, side: str, column: int, budgets: Budgets) -> int | None:
        values = self.states.costs[budgets.allow(self.states.costs), column]
        if not len(values):
            return None
        return int(values.min() if side == "max" else values.max())

    def _solution(self, i: int) -> Solution:
        return self.states.solution(int(self.kept[i]))


class Proven:
    """Answers from exact dynamic programming where one cost is bounded, else from HiGHS."""

    optimal = True

    def __init__(self, problems: Sequence[Problem], budgets: Budgets, column: int, programmes: bool) -> None:
        self.problems, self.budgets, self.column = problems, budgets, column
        self.active = budgets.active(problems)
        self.programmes = programmes
        self.complete_front = not programmes
        self.leading = _representatives(problems, bool(np.any(budgets.low > 0)))
        if programmes:
            columns = {i for side, i in self.active if side == "max"} | {column}
            self.exact = {i: Exact(problems, i, [int(budgets.high[i])] * len(problems)) for i in columns}
        else:
            limits = single_limits(problems, budgets, column)
            if limits is None:
                names = ", ".join(f"{side}_{COSTS[i]}" for side, i in self.active)
                raise ValueError(f"method 'exact' takes one upper budget, not {names}; use milp or auto")
            self.exact = {column: Exact(problems, column, limits)}

    def in_order(self) -> Iterator[tuple[Solution, float]]:
        return self._stream(self.leading)

    def front(self) -> list[Solution]:
        if not self.programmes:
            points = self.exact[self.column].front(self.leading, FRONT_POINTS)
            self.complete_front = len(points) < FRONT_POINTS
            return points
        least = self.extreme("max", self.column, self.budgets)
        top = next(self.in_order(), None)
        if least is None or top is None:
            return []
        found: list[Solution] = []
        for level in np.geomspace(max(least, 1), max(int(top[0].costs[self.column]), 1), LEVELS):
            if found and level < found[-1].costs[self.column]:
                continue
            budgets = self.budgets.replaced("max", self.column, max(least, round(level)))
            engine = Proven(self.problems, budgets, self.column, True)
            best = next(engine.in_order(), None)
            if best and not (found and at_least(found[-1].score, best[0].score)):
                found.append(engine.cheapest_for(best[0].score))
        return found

    def cheapest_for(self, score: float) -> Solution:
        """The solution that scores ``score`` or more at the least cost in the engine's column."""
        close = [i for i in range(len(self.problems)) if self._reaches(i, score)]
        problems = [self.problems[i] for i in close]
        found = milp.least_cost(problems, self.budgets, (self.column,), score)
        assert found is not None  # a solution with this score was just found
        return Solution(close[found.problem], found.picks, found.score, found.costs)

    def count(self, threshold: float) -> Count:
        columns = [column for _, column in self.active]
        close = [p for i, p in enumerate(self.problems) if self._reaches(i, threshold)]
        counted = count_at_least(close, self.budgets, columns, threshold)
        if counted is not None:
            return Count(counted, True)
        found, every = 0, range(len(self.problems))
        for solution, _ in itertools.islice(self._stream(every), 50 if self.programmes else COUNTED):
            if not at_least(solution.score, threshold):
                return Count(found, True)
            found += self.problems[solution.problem].ways(solution.picks)
        return Count(found, False)

    def cheapest(self, threshold: float) -> Solution:
        close = [i for i in self.leading if self._reaches(i, threshold)]
        on_front = [] if self.programmes else [i for i in close if self._ordered_alike(i)]
        found = [self._first_on_front(i, threshold) for i in on_front]
        rest = sorted(set(close) - set(on_front))
        other = milp.least_cost([self.problems[i] for i in rest], self.budgets, PREFERENCE, threshold)
        if other is not None:
            found.append(Solution(rest[other.problem], other.picks, other.score, other.costs))
        return min(found, key=lambda s: (*s.costs[list(PREFERENCE)], -s.score))

    def peaks(self) -> dict[int, float]:
        bounds = {index: self._bound(index) for index in self.leading}
        return {index: bound for index, bound in bounds.items() if bound is not None}

    def extreme(self, side: str, column: int, budgets: Budgets) -> int | None:
        if not budgets.active(self.problems):
            lows, highs = zip(*(p.extreme_costs() for p in self.problems), strict=True)
            return int(min(c[column] for c in lows) if side == "max" else max(c[column] for c in highs))
        if side == "max":
            found = milp.least_cost(self.problems, budgets, (column,))
            return None if found is None else int(found.costs[column])
        best: int | None = None
        for problem in sorted(self.problems, key=lambda p: -int(p.extreme_costs()[1][column])):
            if best is not None and int(problem.extreme_costs()[1][column]) <= best:
                break
            objective = [-table.costs[:, column].astype(float) for table, _ in problem.blocks]
            optimum = milp.minimise(problem, objective, budgets)
            if optimum is not None:
                value = int(problem.cost(optimum.picks)[column])
                best = value if best is None else max(best, value)
        return best

    def _stream(self, indices: Sequence[int]) -> Iterator[tuple[Solution, float]]:
        if self.programmes:
            return milp.in_order(self.problems, self.budgets, self._bound, indices)
        exact = self.exact[self.column]
        return ((s, s.score) for s in exact.in_order(indices))

    def _bound(self, index: int) -> float | None:
        """An upper bound of a problem's score: the best under each upper budget alone."""
        least, most = self.problems[index].extreme_costs()
        if np.any(least > self.budgets.high) or np.any(most < self.budgets.low):
            return None
        bound = math.inf
        for exact in self.exact.values():
            alone = exact.best_score(index)
            if alone is None:
                return None
            bound = min(bound, alone)
        return bound

    def _ordered_alike(self, index: int) -> bool:
        """Whether within a problem the cheapest solution is also the preferred one."""
        problem = self.problems[index]
        return all(
            _is_constant(problem, cost) or _proportion(problem, cost, self.column) is not None
            for cost in PREFERENCE
        )

    def _first_on_front(self, index: int, threshold: float) -> Solution:
        """The cheapest solution of a problem that scores ``threshold`` or more: a point of its front."""
        exact, problem = self.exact[self.column], self.problems[index]
        front = exact.prefix(problem.blocks)
        point = int(np.argmax(at_least(exact.value(problem, front.score), threshold)))
        (picks,) = exact.trace(problem, front.cost[[point]], front.score[[point]])
        return Solution(index, picks, problem.score(picks), problem.cost(picks))

    def _reaches(self, index: int, threshold: float) -> bool:
        bound = self._bound(index)
        return bound is not None and bool(at_least(bound, threshold))


def _representatives(problems: Sequence[Problem], lower_bounds: bool) -> list[int]:
    """Problems without those that differ from another only by costing more, such as a larger embedding.

    With lower bounds on costs a dearer one may be the only one that fits, so all stay.
    """
    if lower_bounds:
        return list(range(len(problems)))
    groups: dict[object, list[int]] = {}
    for index, problem in enumerate(problems):
        blocks = tuple((id(table), count) for table, count in problem.blocks)
        groups.setdefault((blocks, problem.factor, problem.offset), []).append(index)
    kept: list[int] = []
    for group in groups.values():
        costs = np.array([problems[i].costs for i in group])
        least = np.flatnonzero((costs == costs.min(axis=0)).all(axis=1))
        kept += [group[least[0]]] if len(least) else group
    return sorted(kept)


def single_limits(problems: Sequence[Problem], budgets: Budgets, column: int) -> list[int] | None:
    """The budgets as one upper limit on ``column`` for each problem, or None where they are more than that.

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
    least, most = problem.extreme_costs()
    if np.any(least > budgets.high) or np.any(most < budgets.low):
        return -1
    if np.any(least < budgets.low):
        return None
    limit = int(budgets.high[column])
    for other in np.flatnonzero(most > budgets.high):
        if other == column:
            continue
        slope = _proportion(problem, int(other), column)
        if slope is None:
            return None
        room = int(budgets.high[other] - least[other])
        limit = min(limit, int(least[column]) + room * slope.denominator // slope.numerator)
    return limit


def _is_constant(problem: Problem, column: int) -> bool:
    return not any(np.ptp(table.costs[:, column]) for table, _ in problem.blocks)


def _proportion(problem: Problem, of: int, to: int) -> Fraction | None:
    """The one positive ratio in which two costs grow from candidate to candidate, if there is one."""
    grown = [table.costs - table.costs.min(axis=0) for table, _ in problem.blocks]
    x, y = (np.concatenate([g[:, c] for g in grown]) for c in (to, of))
    top = int(np.argmax(x))
    if not x[top] or not y[top]:
        return None
    slope = Fraction(int(y[top]), int(x[top]))
    proportional = np.array_equal(y.astype(object) * slope.denominator, x.astype(object) * slope.numerator)
    return slope if proportional else None


def bounded_columns(budgets: Budgets) -> list[int]:
    """Cost columns with an upper budget."""
    return [i for i in range(len(COSTS)) if budgets.high[i] < UNBOUNDED]
