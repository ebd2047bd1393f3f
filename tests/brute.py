"""Slow twins of the solvers: they visit everything."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from zerolm.solvers.problem import Budgets, Problem

Picks = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class State:
    """A multiset of candidates in each block, with the number of architectures behind it."""

    problem: int
    picks: Picks
    score: float
    costs: tuple[int, ...]
    ways: int

    def keeps(self, budgets: Budgets) -> bool:
        return all(low <= c <= h for low, c, h in zip(budgets.low, self.costs, budgets.high, strict=True))


def states(problems: Sequence[Problem]) -> list[State]:
    found = []
    for index, problem in enumerate(problems):
        ways: Counter[Picks] = Counter()
        per_block = [product(range(len(table)), repeat=count) for table, count in problem.blocks]
        for chosen in product(*per_block):
            picks = tuple(tuple(sorted(block)) for block in chosen)
            ways[picks] += math.prod(
                table.multiplicity[i]
                for (table, _), block in zip(problem.blocks, chosen, strict=True)
                for i in block
            )
        found += [_state(index, problem, picks, number) for picks, number in ways.items()]
    return found


def keeping(problems: Sequence[Problem], budgets: Budgets) -> list[State]:
    return [state for state in states(problems) if state.keeps(budgets)]


def _state(index: int, problem: Problem, picks: Picks, ways: int) -> State:
    score, costs = 0.0, [int(cost) for cost in problem.costs]
    for (table, _), block in zip(problem.blocks, picks, strict=True):
        for i in block:
            score += float(table.score[i])
            costs = [total + int(cost) for total, cost in zip(costs, table.costs[i], strict=True)]
    return State(index, picks, problem.factor * score + problem.offset, tuple(costs), ways)


def pareto(points: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    """The (cost, score) points that no other beats, cheapest first; scores within 1e-9 are equal."""
    front: list[tuple[int, float]] = []
    for cost, score in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or score > front[-1][1] + 1e-9 * abs(front[-1][1]):
            front.append((cost, score))
    return front
