"""Random sampling and NSGA-II: not exact, for comparison and for scores that do not add up."""

from __future__ import annotations

import importlib.util
import json
import math
import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np

from zerolm.architecture import Architecture, Floats, Ints
from zerolm.scores import make_score
from zerolm.solvers.exhaustive import Ways
from zerolm.solvers.problem import Budgets, Picks, Problem, Solution
from zerolm.spaces import SearchSpace

Evaluate = Callable[[Sequence[tuple[int, Picks]]], Floats]
"""Scores (n,) of n (problem, picks) pairs."""
Draw = Callable[[random.Random], tuple[int, Picks]]
USELESS_DRAWS: Final = 5000
"""Draws in a row that may all be of no use."""
SIZE_WORDS: Final = {"params": "parameters", "body_params": "parameters without embeddings and head"}


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


def drawn(
    space: SearchSpace,
    count: int,
    seed: int,
    *,
    budgets: Mapping[str, int] | None = None,
    distinct: bool = False,
) -> list[Architecture]:
    """Return ``count`` architectures, each of the space equally likely, drawn with replacement.

    ``budgets`` are ``max_params``, ``min_params``, ``max_body_params`` and ``min_body_params``; with
    ``distinct`` none comes twice. ``ValueError`` where what is asked for is too rare.
    """
    generator = random.Random(seed)
    backbones = list(space.backbones())
    below = list(accumulate(backbone.size for backbone in backbones))
    limits = {name: make_score(name.partition("_")[2]) for name in budgets or {}}
    nearest: dict[str, float] = {}
    architectures, seen = list[Architecture](), set[str]()
    since = 0
    while since < USELESS_DRAWS:
        ticket = generator.randrange(below[-1])  # integers: the sizes are beyond floats
        backbone = backbones[bisect_right(below, ticket)]
        layers: list[dict[str, Any]] = []
        for block in backbone.blocks:
            ways = [way for ways in block.candidates.alternatives for way in ways]
            chosen = generator.choices(ways, k=1 if block.tied else block.count)
            layers += chosen * block.count if block.tied else chosen
        architecture = space.read(space.join(backbone, layers))
        sizes = {name: score.of(architecture) for name, score in limits.items()}
        for name, size in sizes.items():
            best = min if name.startswith("max") else max
            nearest[name] = best(size, nearest.get(name, size))
        since += 1
        key = json.dumps(architecture.choices, sort_keys=True) if distinct else ""
        if _within(sizes, budgets or {}) and not (distinct and key in seen):
            seen.add(key)
            architectures.append(architecture)
            since = 0
        if len(architectures) == count:
            return architectures
    raise ValueError(_rare(space.name, budgets or {}, nearest, len(architectures)))


def _within(sizes: Mapping[str, float], budgets: Mapping[str, int]) -> bool:
    return all(
        sizes[name] <= limit if name.startswith("max") else sizes[name] >= limit
        for name, limit in budgets.items()
    )


def _rare(space: str, budgets: Mapping[str, int], nearest: Mapping[str, float], count: int) -> str:
    for name, limit in budgets.items():
        side, _, cost = name.partition("_")
        if not _within({name: nearest[name]}, {name: limit}):
            more, end, advice = (
                ("more than", "smallest", "more") if side == "max" else ("fewer than", "largest", "fewer")
            )
            return (
                f"{USELESS_DRAWS:,} architectures sampled from {space!r} in a row have {more} {limit:,} "
                f"{SIZE_WORDS[cost]}, the {end} of all {nearest[name]:,.0f}: allow {advice}"
            )
    within = " within the budgets" if budgets else ""
    return f"only {count} different architectures of {space!r}{within} were sampled; ask for {count} at most"
