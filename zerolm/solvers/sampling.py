"""Random sampling and NSGA-II: not exact, for comparison and for scores that do not add up."""

from __future__ import annotations

import importlib.util
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.solvers.exhaustive import Ways
from zerolm.solvers.problem import Budgets, Picks, Problem, Solution

Evaluate = Callable[[Sequence[tuple[int, Picks]]], Floats]
"""Scores (n,) of n (problem, picks) pairs."""
Draw = Callable[[random.Random], tuple[int, Picks]]


@dataclass(frozen=True, eq=False)
class Sample:
    """Distinct solutions that were evaluated, with the arrays that ``States`` has."""

    problems: Sequence[Problem]
    solutions: Sequence[Solution]
    score: Floats
    costs: Ints
    ways: Ways

    @classmethod
    def of(cls, problems: Sequence[Problem], solutions: Sequence[Solution]) -> Sample:
        ways = [problems[s.problem].ways(s.picks) for s in solutions]
        return cls(
            problems,
            solutions,
            np.array([s.score for s in solutions], np.float64),
            np.array([s.costs for s in solutions], np.int64).reshape(-1, len(problems[0].costs)),
            np.array(ways, object),
        )

    @property
    def problem(self) -> Ints:
        return np.array([s.problem for s in self.solutions], np.int64)

    def solution(self, i: int) -> Solution:
        return self.solutions[i]


def additive(problems: Sequence[Problem]) -> Evaluate:
    """Return scores from the tables."""
    return lambda pairs: np.array([problems[index].score(picks) for index, picks in pairs])


def uniform(problems: Sequence[Problem]) -> Draw:
    """Return a function that draws an architecture, every one of the space equally likely."""
    sizes = [
        math.prod(sum(table.multiplicity) ** count for table, count in problem.blocks) for problem in problems
    ]
    total = sum(sizes)

    def draw(generator: random.Random) -> tuple[int, Picks]:
        ticket, index = generator.randrange(total), 0  # big integers: floats would lose small backbones
        while ticket >= sizes[index]:
            ticket -= sizes[index]
            index += 1
        return index, tuple(
            tuple(sorted(generator.choices(range(len(table)), table.multiplicity, k=count)))
            for table, count in problems[index].blocks
        )

    return draw


def random_sample(problems: Sequence[Problem], evaluate: Evaluate, draws: int, seed: int) -> Sample:
    """Return ``draws`` architectures, every one of the space equally likely, without repetition of shapes."""
    generator, draw = random.Random(seed), uniform(problems)
    pairs = list(dict.fromkeys(draw(generator) for _ in range(draws)))
    return scored(problems, pairs, evaluate)


def scored(problems: Sequence[Problem], pairs: Sequence[tuple[int, Picks]], evaluate: Evaluate) -> Sample:
    """Return (problem, picks) pairs with their scores and costs."""
    scores = evaluate(pairs) if pairs else ()
    solutions = [
        Solution(index, picks, float(score), problems[index].cost(picks))
        for (index, picks), score in zip(pairs, scores, strict=True)
    ]
    return Sample.of(problems, solutions)


def nsga2(
    problems: Sequence[Problem],
    evaluate: Evaluate,
    budgets: Budgets,
    column: int,
    population: int = 100,
    generations: int = 200,
    seed: int = 0,
) -> Sample:
    """Return the architectures that NSGA-II (pymoo) evaluated on score against the cost ``column`` under all
    budgets.

    A genome is one real number for the backbone and one for each layer, cut into equal intervals.
    """
    if not pymoo_installed():
        raise ModuleNotFoundError("method 'nsga2' needs pymoo: pip install 'zerolm[nsga2]'")
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.problem import Problem as PymooProblem
    from pymoo.operators.crossover.sbx import SBX
    from pymoo.operators.mutation.pm import PM
    from pymoo.optimize import minimize

    slots = max(sum(count for _, count in problem.blocks) for problem in problems)
    seen: dict[tuple[int, Picks], tuple[float, Ints]] = {}

    def decode(genome: Floats) -> tuple[int, Picks]:
        index = min(int(genome[0] * len(problems)), len(problems) - 1)
        picks, start = [], 1
        for table, count in problems[index].blocks:
            genes = (genome[start : start + count] * len(table)).astype(int)
            picks.append(tuple(sorted(np.minimum(genes, len(table) - 1).tolist())))
            start += count
        return index, tuple(picks)

    class GenomeProblem(PymooProblem):  # type: ignore[misc]
        def __init__(self) -> None:
            limits = 2 * len(budgets.high)
            super().__init__(n_var=1 + slots, n_obj=2, n_ieq_constr=limits, xl=0.0, xu=1.0)

        def _evaluate(self, x: Floats, out: dict[str, Any], *args: Any, **kwargs: Any) -> None:
            pairs = [decode(genome) for genome in x]
            new = [pair for pair in dict.fromkeys(pairs) if pair not in seen]
            if new:
                for pair, score in zip(new, evaluate(new), strict=True):
                    seen[pair] = float(score), problems[pair[0]].cost(pair[1])
            scores = np.array([seen[pair][0] for pair in pairs])
            costs = np.array([seen[pair][1] for pair in pairs], np.float64)
            out["F"] = np.stack([costs[:, column], -scores], axis=1)
            over = costs / np.maximum(budgets.high, 1) - 1.0
            under = 1.0 - costs / np.maximum(budgets.low, 1) * (budgets.low > 0) - (budgets.low == 0)
            out["G"] = np.concatenate([over, under], axis=1)

    minimize(
        GenomeProblem(),
        NSGA2(pop_size=population, crossover=SBX(prob=0.9, eta=10), mutation=PM(eta=3)),
        ("n_gen", generations),
        seed=seed,
    )
    return Sample.of(
        problems, [Solution(pair[0], pair[1], score, costs) for pair, (score, costs) in seen.items()]
    )


def pymoo_installed() -> bool:
    return importlib.util.find_spec("pymoo") is not None
