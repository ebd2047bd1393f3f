"""The method for scores with guides: closed forms put architectures forward, the score ranks them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from itertools import islice
from typing import Final

import numpy as np

from zerolm.solvers.engine import Engine
from zerolm.solvers.instance import Instance
from zerolm.solvers.problem import Picks, Problem
from zerolm.solvers.sampling import Sample

GUIDED: Final = 300
"""Architectures of each guide of a score, and points of its front."""


def reranked(instance: Instance, solve: Callable[[Instance], Engine]) -> Sample:
    """Return the best architectures within the budgets, and the fronts, of the score's guides, scored.

    ``solve`` gives the proven answers of a guide.
    """
    pairs: dict[tuple[int, Picks], None] = {}
    for guide in instance.score.guides:
        engine = solve(instance.scored_by(guide))
        best = [solution for solution, _ in islice(engine.in_order(), GUIDED)]
        if not best:  # no other guide has any within the budgets
            break
        front = list(engine.front())
        spread = [front[i] for i in np.unique(np.linspace(0, len(front) - 1, GUIDED).astype(int))]
        pairs |= dict.fromkeys(
            (solution.problem, _split(solution.picks, instance.problems[solution.problem]))
            for solution in (*best, *spread)
        )
    scores = instance.evaluate(list(pairs)) if pairs else ()
    solutions = [instance.solution(*pair, float(score)) for pair, score in zip(pairs, scores, strict=True)]
    return Sample.of(instance.problems, solutions)


def _split(picks: Picks, problem: Problem) -> Picks:
    """Return picks of merged blocks as those of the blocks that a problem has."""
    layers = itertools.chain.from_iterable(picks)
    return tuple(tuple(islice(layers, count)) for _, count in problem.blocks)
