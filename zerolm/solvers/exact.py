"""Exact dynamic programming: the Pareto front of score against one cost, and solutions in order of score.

Scores are turned into 62-bit integers once, so that sums do not depend on their order, equal sums are
equal, and a point of a front can be traced back by exact subtraction.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.solvers.problem import Problem, Solution
from zerolm.spaces import CandidateTable

UNREACHED = -(1 << 62)
DENSE_LIMIT = 1 << 17
FRONT_POINTS: Final = 4000
"""Points of a front up to which it is given whole."""


@dataclass(frozen=True, eq=False)
class Front:
    """Points that no other dominates: ``cost`` and ``score`` (p,) int64, both strictly increasing."""

    cost: Ints
    score: Ints

    def best(self, budget: int) -> int:
        """Return the highest score at a cost of at most ``budget``, or ``UNREACHED``."""
        i = int(np.searchsorted(self.cost, budget, side="right"))
        return int(self.score[i - 1]) if i else UNREACHED

    def upto(self, budget: int) -> Front:
        i = int(np.searchsorted(self.cost, budget, side="right"))
        return Front(self.cost[:i], self.score[:i])


EMPTY = Front(np.zeros(0, np.int64), np.zeros(0, np.int64))
ORIGIN = Front(np.zeros(1, np.int64), np.zeros(1, np.int64))


def prune(cost: Ints, score: Ints) -> Front:
    """Return the front of points (p,) in any order."""
    order = np.argsort(cost, kind="stable")
    cost, score = cost[order], score[order]
    before = np.concatenate([[UNREACHED - 1], np.maximum.accumulate(score)[:-1]])
    higher = np.flatnonzero(score > before)
    cost, score = cost[higher], score[higher]
    last = np.ones(len(cost), np.bool_)
    last[:-1] = cost[:-1] != cost[1:]
    return Front(cost[last], score[last])


def add_choice(front: Front, cost: Ints, score: Ints) -> Front:
    """Return the front after one more choice among candidates (c,): the pruned Minkowski sum."""
    if not len(front.cost):
        return front
    base = int(front.cost[0] + cost.min())
    steps = np.concatenate([np.diff(front.cost), cost - cost.min()])
    step = int(np.gcd.reduce(steps)) or 1
    length = (int(front.cost[-1] + cost.max()) - base) // step + 1
    if length > min(DENSE_LIMIT, len(front.cost) * len(cost)):
        return prune((front.cost[None] + cost[:, None]).ravel(), (front.score[None] + score[:, None]).ravel())
    # On a short lattice of costs, shifted maxima of a dense array are faster than sorting all sums.
    places = (front.cost - front.cost[0]) // step
    width = int(places[-1]) + 1
    dense = np.full(width, UNREACHED // 2, np.int64)
    dense[places] = front.score
    total = np.full(length, UNREACHED, np.int64)
    for shift, value in zip(((cost - cost.min()) // step).tolist(), score.tolist(), strict=True):
        part = total[shift : shift + width]
        np.maximum(part, dense + value, out=part)
    reached = np.flatnonzero(total > UNREACHED // 4)
    return prune(base + step * reached, total[reached])


def merge(a: Front, b: Front) -> Front:
    if not len(a.cost) or not len(b.cost):
        return b if not len(a.cost) else a
    return prune(np.concatenate([a.cost, b.cost]), np.concatenate([a.score, b.score]))


@dataclass(eq=False)
class Exact:
    """Fronts and ordered solutions of several problems by one cost column.

    Problem i may cost up to ``limits[i]`` in that column. ``scale`` turns a table's scores into
    integers; fronts of shared tables are computed once.
    """

    problems: Sequence[Problem]
    column: int
    limits: Sequence[int]
    scale: float = field(init=False)
    _scores: dict[int, Ints] = field(init=False, default_factory=dict)
    _fronts: dict[tuple[tuple[int, int], ...], Front] = field(init=False, default_factory=dict)
    _suffixes: dict[tuple[tuple[int, int], ...], _Suffixes] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        largest = max(
            sum(count * float(np.abs(table.score).max()) for table, count in problem.blocks)
            for problem in self.problems
        )
        self.scale = float(1 << 59) / largest if largest else 1.0

    def integers(self, table: CandidateTable) -> Ints:
        if id(table) not in self._scores:
            self._scores[id(table)] = np.rint(table.score * self.scale).astype(np.int64)
        return self._scores[id(table)]

    def value(self, problem: Problem, score: int | Ints) -> Floats:
        """Return the score of a problem from its integer sum."""
        return np.asarray(problem.factor * (np.asarray(score) / self.scale) + problem.offset)

    def prefix(self, blocks: Sequence[tuple[CandidateTable, int]]) -> Front:
        """Return the front of these choices, made one after the other."""
        front, path = ORIGIN, tuple[tuple[int, int], ...]()
        for table, count in blocks:
            for chosen in range(1, count + 1):
                key = (*path, (id(table), chosen))
                if key not in self._fronts:
                    costs, scores = table.costs[:, self.column], self.integers(table)
                    self._fronts[key] = add_choice(front, costs, scores)
                front = self._fronts[key]
            path = (*path, (id(table), count))
        return front

    def points(self, problem: Problem) -> Front:
        """Return the front of a problem's choices, without the backbone's own cost."""
        return self.prefix([problem.blocks[b] for b in self._coarse_first(problem)])

    def _coarse_first(self, problem: Problem) -> list[int]:
        """Return blocks by falling range of cost: few sums differ until the fine steps come."""
        return sorted(
            range(len(problem.blocks)), key=lambda b: -int(np.ptp(problem.blocks[b][0].costs[:, self.column]))
        )

    def best_score(self, index: int) -> float | None:
        """Return the best score of one problem within its limit, None where nothing fits."""
        problem = self.problems[index]
        room = self._room(index)
        if room is None:
            return None
        best = self.points(problem).best(room)
        return None if best == UNREACHED else float(self.value(problem, best))

    def _room(self, index: int) -> int | None:
        """Return the most that the choices of a problem may cost, None where even the least is more."""
        problem = self.problems[index]
        room = self.limits[index] - int(problem.costs[self.column])
        least = sum(count * int(table.least[self.column]) for table, count in problem.blocks)
        return room if least <= room else None

    def front(self, indices: Sequence[int] | None = None, most: int | None = None) -> list[Solution]:
        """Return the front over all (or these) problems within their limits, cheapest first.

        The whole of it, or ``most`` of its points, evenly chosen.
        """
        costs, scores, owners, sums = [], [], [], []
        for index in range(len(self.problems)) if indices is None else indices:
            problem, room = self.problems[index], self._room(index)
            if room is None:
                continue
            local = self.points(problem).upto(room)
            costs.append(local.cost + problem.costs[self.column])
            scores.append(self.value(problem, local.score))
            owners.append(np.full(len(local.cost), index))
            sums.append(local.score)
        if not costs:
            return []
        cost, score = np.concatenate(costs), np.concatenate(scores)
        owner, total = np.concatenate(owners), np.concatenate(sums)
        chosen = thinned(staircase(cost, score), most)
        solutions: dict[int, Solution] = {}
        for index in np.unique(owner[chosen]).tolist():
            problem = self.problems[index]
            points = chosen[owner[chosen] == index]
            traced = self.trace(problem, cost[points] - problem.costs[self.column], total[points])
            for point, picks in zip(points.tolist(), traced, strict=True):
                solutions[point] = problem.solution(index, picks)
        return [solutions[point] for point in chosen.tolist()]

    def trace(self, problem: Problem, cost: Ints, score: Ints) -> list[tuple[tuple[int, ...], ...]]:
        """Return the picks behind points (p,) of a problem's front, by subtraction, the last choice first."""
        order = self._coarse_first(problem)
        blocks = [problem.blocks[b] for b in order]
        picks: list[list[tuple[int, ...]]] = [[] for _ in blocks]
        while blocks:
            table, count = blocks.pop()
            chosen = np.empty((len(cost), count), np.int64)
            for earlier in range(count - 1, -1, -1):
                before = self.prefix([*blocks, (table, earlier)] if earlier else blocks)
                chosen[:, earlier] = self._last_choice(table, before, cost, score)
                cost = cost - table.costs[chosen[:, earlier], self.column]
                score = score - self.integers(table)[chosen[:, earlier]]
            picks[order[len(blocks)]] = [tuple(row) for row in np.sort(chosen, axis=1).tolist()]
        return list(zip(*picks, strict=True))

    def _last_choice(self, table: CandidateTable, before: Front, cost: Ints, score: Ints) -> Ints:
        """Return for points (p,) the first candidate whose removal leaves a point of the front before it."""
        choice = np.full(len(cost), -1)
        for candidate, (c, s) in enumerate(
            zip(table.costs[:, self.column].tolist(), self.integers(table).tolist(), strict=True)
        ):
            place = np.minimum(np.searchsorted(before.cost, cost - c), len(before.cost) - 1)
            fits = (before.cost[place] == cost - c) & (before.score[place] == score - s)
            choice[fits & (choice < 0)] = candidate
        return choice

    def in_order(self, indices: Sequence[int] | None = None) -> Iterator[Solution]:
        """Yield all solutions of all (or these) problems within their limits, best first, each once.

        Best-first search whose bound is exact: the front of what remains to be chosen. Nothing is
        ever expanded that does not lead to a solution of the score it promises.
        """
        tick = itertools.count(0, -1)  # the newest of equal bounds first: depth before breadth on a plateau
        heap: list[tuple[float, int, int, _Node | None]] = []
        for index in range(len(self.problems)) if indices is None else indices:
            best = self.best_score(index)
            if best is not None:
                heapq.heappush(heap, (-best, next(tick), index, None))
        while heap:
            _, _, index, node = heapq.heappop(heap)
            problem = self.problems[index]
            suffixes = self._suffix(problem)
            room = self.limits[index] - int(problem.costs[self.column])
            if node is None:
                node = suffixes.start()
            elif suffixes.complete(node):
                yield problem.solution(index, suffixes.picks(node))
                continue
            for child in suffixes.children(node):
                rest = suffixes.front(child).best(room - child.cost)
                if rest != UNREACHED:
                    bound = float(self.value(problem, child.score + rest))
                    heapq.heappush(heap, (-bound, next(tick), index, child))

    def _suffix(self, problem: Problem) -> _Suffixes:
        key = tuple((id(table), count) for table, count in problem.blocks)
        if key not in self._suffixes:
            self._suffixes[key] = _Suffixes(problem.blocks, self.column, self.integers)
        return self._suffixes[key]


@dataclass(frozen=True, slots=True)
class _Node:
    """Candidates above ``candidate`` of block ``block`` are decided; ``remaining`` picks of it remain."""

    block: int
    candidate: int
    remaining: int
    cost: int
    score: int
    chosen: tuple[int, ...]


class _Suffixes:
    """Fronts of all ways to finish: candidates up to j for n more picks, then the later blocks."""

    def __init__(
        self,
        blocks: Sequence[tuple[CandidateTable, int]],
        column: int,
        integers: Callable[[CandidateTable], Ints],
    ) -> None:
        self.blocks = blocks
        self.costs = [table.costs[:, column].tolist() for table, _ in blocks]
        self.scores = [integers(table).tolist() for table, _ in blocks]
        self.fronts: list[list[list[Front]]] = [[] for _ in blocks]
        after = ORIGIN
        for b in range(len(blocks) - 1, -1, -1):
            table, count = blocks[b]
            row = [after] + [EMPTY] * count
            for j in range(len(table)):
                above = row
                row = [after]
                for n in range(1, count + 1):
                    shifted = Front(row[-1].cost + self.costs[b][j], row[-1].score + self.scores[b][j])
                    row.append(merge(above[n], shifted))
                self.fronts[b].append(row)
            after = row[count]

    def start(self) -> _Node:
        return self._enter(0, 0, 0, ())

    def _enter(self, block: int, cost: int, score: int, chosen: tuple[int, ...]) -> _Node:
        if block == len(self.blocks):
            return _Node(block, 0, 0, cost, score, chosen)
        table, count = self.blocks[block]
        return _Node(block, len(table) - 1, count, cost, score, chosen)

    def complete(self, node: _Node) -> bool:
        return node.block == len(self.blocks)

    def front(self, node: _Node) -> Front:
        return ORIGIN if self.complete(node) else self.fronts[node.block][node.candidate][node.remaining]

    def children(self, node: _Node) -> Iterator[_Node]:
        """Pick the current candidate once more, or leave it for good."""
        b, j = node.block, node.candidate
        cost, score = node.cost + self.costs[b][j], node.score + self.scores[b][j]
        chosen = (*node.chosen, j)
        if node.remaining == 1:
            yield self._enter(b + 1, cost, score, chosen)
        else:
            yield _Node(b, j, node.remaining - 1, cost, score, chosen)
        if j:
            yield _Node(b, j - 1, node.remaining, node.cost, node.score, node.chosen)

    def picks(self, node: _Node) -> tuple[tuple[int, ...], ...]:
        picks, start = [], 0
        for _, count in self.blocks:
            picks.append(tuple(sorted(node.chosen[start : start + count])))
            start += count
        return tuple(picks)


def staircase(cost: Ints, score: Floats) -> Ints:
    """Return the indices of the front of points (n,), cheapest first.

    A score is higher than another where it is so by more than 1e-12 of it. Of equal points the first counts.
    """
    order: Ints = np.lexsort((-score, cost))
    score = score[order]
    running = np.maximum.accumulate(score)
    higher = score[1:] > running[:-1] + 1e-12 * np.abs(running[:-1])
    points: Ints = order[np.concatenate([[True], higher])[: len(order)]]
    return points


def thinned(points: Ints, most: int | None) -> Ints:
    """Return at most ``most`` of the points, evenly chosen, both ends among them."""
    if most is None or len(points) <= most:
        return points
    return points[np.linspace(0, len(points) - 1, most).round().astype(np.int64)]
