"""Every architecture whose layers are all alike: one pick a backbone, looked at where it can matter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from zerolm.architecture import Bools, Floats, Ints
from zerolm.solvers.engine import Count, StateList
from zerolm.solvers.exhaustive import States
from zerolm.solvers.problem import UNBOUNDED, Budgets, Problem, Solution, at_least
from zerolm.spaces import CandidateTable, RepeatedTable

MARGINS: Final = (0.01, 0.03, 0.1, 0.3, 1.0)
"""How far below the best, relative to it, is looked at by and by."""
Columns = tuple[Ints, Ints, Floats, Ints, Ints]
"""Some states: problem, pick, score, costs, ways."""


def tied(problems: Sequence[Problem]) -> bool:
    """Return whether all layers of every architecture are alike."""
    return all(len(problem.blocks) == 1 and problem.blocks[0][1] == 1 for problem in problems)


class Tied:
    """Answers from all architectures of one pick each, proven: those of a list of the states that can matter.

    Backbones that differ in depth and ends alone share a table: the score rises with that of the pick, and
    the budgets are limits of its costs. A backbone whose best within the engine's first budget is too low is
    not looked at further.
    """

    optimal = complete = ordered = True

    def __init__(self, problems: Sequence[Problem], budgets: Budgets, column: int) -> None:
        self.problems, self.budgets, self.column, self.complete_front = problems, budgets, column, True
        self.groups = _groups(problems, budgets, column)

    def in_order(self) -> Iterator[tuple[Solution, float]]:
        if self.best is None:
            return
        above: float | None = None
        for level in MARGINS:
            threshold = self.best - level * abs(self.best) if level < 1 else -np.inf
            for solution, score in self._reaching(threshold).in_order():
                if above is None or not at_least(score, above):
                    yield solution, score
            above = threshold

    def front(self) -> list[Solution]:
        listed = self._listed(part for group in self.groups for part in group.front(self.column))
        points = listed.front()
        self.complete_front = listed.complete_front
        return points

    def count(self, threshold: float) -> Count:
        return self._reaching(threshold).count(threshold)

    def cheapest(self, threshold: float) -> Solution:
        return self._reaching(threshold).cheapest(threshold)

    def peaks(self) -> dict[int, float]:
        peaks = (
            (int(group.indices[place]), group.best(place)) for group in self.groups for place in group.able
        )
        return {index: best for index, best in peaks if best is not None}

    def extreme(self, side: str, column: int, budgets: Budgets) -> int | None:
        groups = _groups(self.problems, budgets, self.column)
        values = [value for group in groups for value in group.extremes(side, column)]
        return (min if side == "max" else max)(values, default=None)

    @cached_property
    def best(self) -> float | None:
        """Return the best score within the budgets, None where nothing keeps them."""
        best: float | None = None
        places = [(group.bounds[place], group, place) for group in self.groups for place in group.able]
        for bound, group, place in sorted(places, key=lambda entry: -entry[0]):
            if best is not None and bound <= best:
                break
            score = group.best(place)
            best = score if best is None or (score is not None and score > best) else best
        return best

    def _reaching(self, threshold: float) -> StateList:
        """Return the answers from all that score the threshold or more."""
        return self._listed(part for group in self.groups for part in group.at_least(threshold))

    def _listed(self, parts: Iterable[Columns]) -> StateList:
        none = np.zeros(0, np.int64)
        empty = (none, none, np.zeros(0), np.zeros((0, len(self.problems[0].costs)), np.int64), none)
        columns = [np.concatenate(column) for column in zip(empty, *parts, strict=True)]
        order = np.lexsort((columns[1], columns[0]))  # of equals the first problem and pick come first
        return StateList(
            States(self.problems, *(column[order] for column in columns)), self.budgets, self.column, True
        )


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
        self.table, self.indices, self.lead = table, np.array(indices), lead
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

    @cached_property
    def bounds(self) -> Floats:
        """Return an upper bound of each backbone's score, (b,): the best within the first budget alone."""
        cost = self.table.costs[:, self.lead]
        order = np.argsort(cost, kind="stable")
        best = np.maximum.accumulate(self.table.score[order])
        place = np.searchsorted(cost[order], self.high[:, self.lead], side="right")
        bound = self.factor * (best[np.maximum(place, 1) - 1] * self.times) + self.offset
        able = (self.table.least <= self.high).all(axis=1) & (self.table.most >= self.low).all(axis=1)
        return np.where((place > 0) & able, bound, -np.inf)

    @cached_property
    def able(self) -> list[int]:
        """Return the places of the backbones that may keep the budgets."""
        return np.flatnonzero(self.bounds > -np.inf).tolist()

    def best(self, place: int) -> float | None:
        """Return the best score of one backbone within the budgets."""
        allowed = self._allowed(place)
        return float(self._scores(place, self.table.score[allowed].max())) if allowed.any() else None

    def at_least(self, threshold: float) -> Iterator[Columns]:
        """Yield, for each backbone, what scores at least the threshold."""
        for place in self.able:
            if at_least(self.bounds[place], threshold):
                good = self._allowed(place)
                if threshold > -np.inf:
                    good &= at_least(self._scores(place, self.table.score), threshold)
                yield self._columns(place, np.flatnonzero(good))

    def front(self, column: int) -> Iterator[Columns]:
        """Yield, for each backbone, the points of its front of score against a cost."""
        order = np.lexsort((-self.table.score, self.table.costs[:, column]))
        for place in self.able:
            picks = order[self._allowed(place)[order]]
            running = np.maximum.accumulate(self.table.score[picks])
            rises = np.concatenate([[True], running[1:] > running[:-1]])[: len(picks)]
            yield self._columns(place, picks[rises])

    def extremes(self, side: str, column: int) -> Iterator[int]:
        """Yield the least (side "max") or largest ("min") of a cost of each backbone within the budgets."""
        for place in self.able:
            costs = self.table.costs[self._allowed(place), column]
            if len(costs):
                end = costs.min() if side == "max" else costs.max()
                yield int(self.ends[place, column] + self.times[place] * end)

    def _columns(self, place: int, picks: Ints) -> Columns:
        costs = self.ends[place] + self.times[place] * self.table.costs[picks]
        score = self._scores(place, self.table.score[picks])
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
