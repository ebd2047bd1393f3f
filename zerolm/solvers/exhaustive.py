"""Every multiset of candidates of every backbone, as flat arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Floats, Ints
from zerolm.solvers.problem import Problem, Solution
from zerolm.spaces import CandidateTable

Ways = NDArray[Any]
"""Counts of architectures: int64, or Python integers where they are larger."""

STATES_LIMIT = 4_000_000
"""States up to which a space is enumerated: some 400 MB."""


def count_states(problems: Sequence[Problem]) -> int:
    """Return the number of multisets of candidates over all problems."""
    return sum(
        math.prod(math.comb(len(table) + count - 1, count) for table, count in problem.blocks)
        for problem in problems
    )


def listable(problems: Sequence[Problem]) -> bool:
    return count_states(problems) <= STATES_LIMIT


@dataclass(frozen=True, eq=False)
class States:
    """All states of the problems: ``problem`` and ``row`` within it (r,), ``score`` (r,), ``costs`` (r, k).

    ``ways`` (r,) counts the architectures a state stands for: int64, or Python integers beyond it.
    """

    problems: Sequence[Problem]
    problem: Ints
    row: Ints
    score: Floats
    costs: Ints
    ways: Ways

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> States:
        states = count_states(problems)
        if states > STATES_LIMIT:
            raise ValueError(
                f"method 'exhaustive' would visit {states:.3g} states, more than {STATES_LIMIT}; "
                f"use exact or milp"
            )
        parts = [_enumerate(problem) for problem in problems]
        sizes = [len(score) for score, _, _ in parts]
        return cls(
            problems,
            np.repeat(np.arange(len(problems)), sizes),
            np.concatenate([np.arange(size) for size in sizes]),
            np.concatenate([score for score, _, _ in parts]),
            np.concatenate([costs for _, costs, _ in parts]),
            np.concatenate([ways for _, _, ways in parts]),
        )

    def solution(self, i: int) -> Solution:
        index, row = int(self.problem[i]), int(self.row[i])
        problem, picks = self.problems[index], []
        for table, count in reversed(problem.blocks):
            sets = multisets(len(table), count)
            row, inner = divmod(row, len(sets))
            picks.append(tuple(int(j) for j in sets[inner]))
        return Solution(index, tuple(reversed(picks)), float(self.score[i]), self.costs[i])


@lru_cache(maxsize=64)
def multisets(candidates: int, count: int) -> Ints:
    """Return all sorted choices of ``count`` among ``candidates``, (r, count)."""
    sets = itertools.chain.from_iterable(itertools.combinations_with_replacement(range(candidates), count))
    return np.fromiter(sets, np.int64).reshape(-1, count)


def _enumerate(problem: Problem) -> tuple[Floats, Ints, Ways]:
    score, costs = np.zeros(1), problem.costs[None]
    ways: Ways = np.ones(1, np.int64)
    total = math.prod(sum(table.multiplicity) ** count for table, count in problem.blocks)
    longest = max((count for _, count in problem.blocks), default=1)
    if total * longest >= 1 << 62:  # a product on the way is larger than the result
        ways = ways.astype(object)
    for table, count in problem.blocks:
        sets = multisets(len(table), count)
        score = np.add.outer(score, table.score[sets].sum(axis=1)).ravel()
        costs = (costs[:, None] + table.costs[sets].sum(axis=1)[None]).reshape(-1, costs.shape[1])
        ways = np.multiply.outer(ways, _ways(table, sets, ways.dtype)).ravel()
    return problem.factor * score + problem.offset, costs, ways


def _ways(table: CandidateTable, sets: Ints, dtype: np.dtype[np.generic]) -> Ways:
    """Return the number of ordered choices of each multiset: permutations times ways to choose."""
    multiplicity = np.array(table.multiplicity, dtype)
    ways = multiplicity[sets].prod(axis=1) if len(sets[0]) else np.ones(len(sets), dtype)
    run = np.ones(len(sets), dtype)
    for place in range(1, sets.shape[1]):
        same = sets[:, place] == sets[:, place - 1]
        run = np.where(same, run + 1, 1)
        ways = ways * (place + 1) // run
    return np.asarray(ways, dtype)
