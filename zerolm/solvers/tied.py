"""Every architecture whose layers are all alike: one pick a backbone, looked at where it can matter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from zerolm.architecture import Bools, Floats, Ints
from zerolm.solvers.engine import PREFERENCE, Count
from zerolm.solvers.problem import UNBOUNDED, Budgets, Problem, Solution, at_least
from zerolm.solvers.staircase import FRONT_POINTS, staircase, thinned
from zerolm.spaces import CandidateTable, RepeatedTable
from zerolm.statistics import tie_ranks

MARGINS: Final = (0.01, 0.03, 0.1, 0.3, 1.0)
"""How far below the best, relative to it, is looked at by and by."""


def tied(problems: Sequence[Problem]) -> bool:
    """Return whether all layers of every architecture are alike."""
    return all(len(problem.blocks) == 1 and problem.blocks[0][1] == 1 for problem in problems)


class Tied:
    """Answers from all architectures of one pick each, proven.

    Backbones that differ in depth and ends alone share a table: the score rises with that of the pick, and
    the budgets are limits of its costs. A backbone whose best within the engine's first budget is too low is
    not looked at further.
    """

    optimal = complete = ordered = True

    def __init__(self, problems: Sequence[Problem], budgets: Budgets, column: int) -> None:
        self.problems, self.column, self.complete_front = problems, column, True
        self.groups = _groups(problems, budgets, column)
        self.bounds = np.empty(len(problems))
        self.group_of: dict[int, _Group] = {}
        for group in self.groups:
            self.bounds[group.indices] = group.bounds
            self.group_of |= dict.fromkeys(group.indices.tolist(), group)

    def in_order(self) -> Iterator[tuple[Solution, float]]:
        best, above = self.best, np.inf
        if best is None:
            return
        for level in MARGINS:
            threshold = best - level * abs(best) if level < 1 else -np.inf
            states = self._states(threshold)
            states = states.rows(~at_least(states.score, above)) if above < np.inf else states
            order = np.lexsort((*states.places, *states.preference, -tie_ranks(states.score)))
            for i in order.tolist():
                yield states.solution(i), float(states.score[i])
            above = threshold

    def front(self) -> list[Solution]:
        points = _States.joined([group.front(self.column) for group in self.groups], self.problems)
        chosen = staircase(points.costs[:, self.column], points.score, *points.places)
        self.complete_front = len(chosen) <= FRONT_POINTS
        return [points.solution(i) for i in thinned(chosen, FRONT_POINTS).tolist()]

    def count(self, threshold: float) -> Count:
        return Count(int(self._states(threshold).ways.sum()), True)

    def cheapest(self, threshold: float) -> Solution:
        states = self._states(threshold)
        return states.solution(int(np.lexsort((*states.places, -states.score, *states.preference))[0]))

    def peaks(self) -> dict[int, float]:
        peaks: dict[int, float] = {}
        for group in self.groups:
            for place, index in enumerate(group.indices.tolist()):
                if (best := group.best(place)) is not None:
                    peaks[index] = best
        return peaks

    def extreme(self, side: str, column: int, budgets: Budgets) -> int | None:
        groups = _groups(self.problems, budgets, self.column)
        values = [value for group in groups for value in group.extremes(side, column)]
        return (min if side == "max" else max)(values, default=None)

    @cached_property
    def best(self) -> float | None:
        """Return the best score within the budgets, None where nothing keeps them."""
        best: float | None = None
        for index in np.argsort(-self.bounds, kind="stable").tolist():
            if self.bounds[index] == -np.inf or (best is not None and self.bounds[index] <= best):
                break
            group = self.group_of[index]
            score = group.best(int(np.searchsorted(group.indices, index)))
            best = score if best is None or (score is not None and score > best) else best
        return best

    def _states(self, threshold: float) -> _States:
        """Return all that score the threshold or more."""
        return _States.joined([group.at_least(threshold) for group in self.groups], self.problems)


@dataclass(frozen=True, eq=False)
class _States:
    """Architectures: problem and pick (r,), score (r,), costs (r, k), and how many each stands for (r,)."""

    problems: Sequence[Problem]
    problem: Ints
    pick: Ints
    score: Floats
    costs: Ints
    ways: Ints

    @classmethod
    def joined(cls, parts: Sequence[Sequence[Part]], problems: Sequence[Problem]) -> _States:
        """Return the states of (group, its backbones, picks) (p,) each."""
        every = [part for some in parts for part in some]
        if not every:
            none = np.zeros(0, np.int64)
            return cls(
                problems, none, none, np.zeros(0), np.zeros((0, len(problems[0].costs)), np.int64), none
            )
        columns = zip(*(group.columns(places, picks) for group, places, picks in every), strict=True)
        return cls(problems, *(np.concatenate(column) for column in columns))

    def rows(self, chosen: Bools) -> _States:
        """Return some of them."""
        problem, pick, ways = self.problem[chosen], self.pick[chosen], self.ways[chosen]
        return _States(self.problems, problem, pick, self.score[chosen], self.costs[chosen], ways)

    @property
    def places(self) -> tuple[Ints, Ints]:
        """Return the keys that order states equal in all else, for ``lexsort``."""
        return self.pick, self.problem

    @property
    def preference(self) -> list[Ints]:
        """Return the costs that decide among equals, the first to count last, as ``lexsort`` takes them."""
        return [self.costs[:, column] for column in reversed(PREFERENCE)]

    def solution(self, i: int) -> Solution:
        return Solution(int(self.problem[i]), ((int(self.pick[i]),),), float(self.score[i]), self.costs[i])


class _Group:
    """Backbones (b,) that pick from one table (n rows): each pick counts ``times`` (b,) over."""

    def __init__(
        self,
        table: CandidateTable,
        indices: list[int],
        problems: Sequence[Problem],
        budgets: Budgets,
        lead: int,
    ) -> None:
        self.table, self.indices = table, np.array(indices)
        mine = [problems[index] for index in indices]
        self.times = np.array([_times(problem) for problem in mine])
        self.factor = np.array([problem.factor for problem in mine])
        self.offset = np.array([problem.offset for problem in mine])
        self.ends = np.array([problem.costs for problem in mine])
        self.ways = np.array(table.multiplicity)
        self.high = (budgets.high - self.ends) // self.times[:, None]
        self.low = -((self.ends - budgets.low) // self.times[:, None])
        capped = np.flatnonzero((self.high < table.most).any(axis=0) & (budgets.high < UNBOUNDED))
        raised = np.flatnonzero((self.low > table.least).any(axis=0) & (budgets.low > 0))
        self.limits = [(int(column), True) for column in capped] + [(int(column), False) for column in raised]
        self.lead = lead

    @cached_property
    def bounds(self) -> Floats:
        """Return an upper bound of each backbone's score, (b,): the best within the first budget alone."""
        cost, best = self._ranked
        place = np.searchsorted(cost, self.high[:, self.lead], side="right")
        bound = self.factor * (best[np.maximum(place, 1) - 1] * self.times) + self.offset
        able = (self.table.least <= self.high).all(axis=1) & (self.table.most >= self.low).all(axis=1)
        return np.where((place > 0) & able, bound, -np.inf)

    def best(self, place: int) -> float | None:
        """Return the best score of one backbone within the budgets."""
        if self.bounds[place] == -np.inf:
            return None
        allowed = self._allowed(place)
        if not allowed.any():
            return None
        return float(self._scores(place, self.table.score[allowed].max()))

    def at_least(self, threshold: float) -> list[Part]:
        """Return the parts with a score of at least the threshold."""
        parts = []
        for place in np.flatnonzero((self.bounds > -np.inf) & at_least(self.bounds, threshold)).tolist():
            good = self._allowed(place)
            if threshold > -np.inf:
                good &= at_least(self._scores(place, self.table.score), threshold)
            parts.append((self, np.array(place), np.flatnonzero(good)))
        return parts

    def front(self, column: int) -> list[Part]:
        """Return, for each backbone, the points of its front of score against a cost."""
        order = np.lexsort((-self.table.score, self.table.costs[:, column]))
        parts = []
        for place in np.flatnonzero(self.bounds > -np.inf).tolist():
            picks = order[self._allowed(place)[order]]
            if len(picks):
                running = np.maximum.accumulate(self.table.score[picks])
                rises = np.concatenate([[True], running[1:] > running[:-1]])
                parts.append((self, np.array(place), picks[rises]))
        return parts

    def extremes(self, side: str, column: int) -> Iterator[int]:
        """Yield the least (side "max") or largest ("min") of a cost of each backbone within the budgets."""
        for place in np.flatnonzero(self.bounds > -np.inf).tolist():
            costs = self.table.costs[self._allowed(place), column]
            if len(costs):
                end = costs.min() if side == "max" else costs.max()
                yield int(self.ends[place, column] + self.times[place] * end)

    def columns(self, place: Ints, picks: Ints) -> tuple[Ints, Ints, Floats, Ints, Ints]:
        """Return the columns of states: problem, pick, score, costs, ways."""
        costs = self.ends[place] + self.times[place] * self.table.costs[picks]
        score = self._scores(int(place), self.table.score[picks])
        return np.full(len(picks), self.indices[place]), picks, score, costs, self.ways[picks]

    def _scores(self, place: int, score: Floats) -> Floats:
        total: Floats = self.factor[place] * (score * self.times[place]) + self.offset[place]
        return total

    def _allowed(self, place: int) -> Bools:
        allowed = np.ones(len(self.table), np.bool_)
        for column, upper in self.limits:
            cost = self.table.costs[:, column]
            allowed &= cost <= self.high[place, column] if upper else cost >= self.low[place, column]
        return allowed

    @cached_property
    def _ranked(self) -> tuple[Ints, Floats]:
        """Return the first budget's cost of the rows in order, and the best score up to each."""
        cost = self.table.costs[:, self.lead]
        order = np.argsort(cost, kind="stable")
        return cost[order], np.maximum.accumulate(self.table.score[order])


Part = tuple[_Group, Ints, Ints]
"""A group, one of its backbones, and picks of it (p,)."""


def _groups(problems: Sequence[Problem], budgets: Budgets, lead: int) -> list[_Group]:
    members: dict[int, tuple[CandidateTable, list[int]]] = {}
    for index, problem in enumerate(problems):
        table = problem.blocks[0][0]
        once = table.once if isinstance(table, RepeatedTable) else table
        members.setdefault(id(once), (once, []))[1].append(index)
    return [_Group(once, indices, problems, budgets, lead) for once, indices in members.values()]


def _times(problem: Problem) -> int:
    table = problem.blocks[0][0]
    return table.times if isinstance(table, RepeatedTable) else 1
