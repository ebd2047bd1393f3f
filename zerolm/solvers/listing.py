"""The method that lists all architectures: in closed form where layers are alike, else one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from zerolm.solvers.engine import Engine, StateList
from zerolm.solvers.exhaustive import States
from zerolm.solvers.instance import Instance
from zerolm.solvers.tied import Tied, tied

WHOLE_LIMIT: Final = 100_000
"""Architectures up to which a score that is not additive is evaluated on all of them."""


def listed(instance: Instance) -> Engine:
    """Return an engine that knows every architecture; ``ValueError`` where there are too many."""
    problems, budgets, column = instance.problems, instance.budgets, instance.column
    if not instance.score.additive:
        return _scored(instance)
    if tied(problems):
        return Tied(problems, budgets, column)
    return StateList(States.of(problems), budgets, column, True)


def _scored(instance: Instance) -> Engine:
    """Return the engine of a score of whole networks; those beyond the budgets are not built: 0.

    A state is one network here. Nothing is proven where it stands for several: they may differ in score.
    """
    states, budgets = States.of(instance.problems), instance.budgets
    if len(states.score) > WHOLE_LIMIT:
        raise ValueError(
            f"method 'exhaustive' would build {len(states.score)} architectures, more than {WHOLE_LIMIT}; "
            f"use nsga2, evolution or random"
        )
    allowed = np.flatnonzero(budgets.allow(states.costs))
    solutions = [states.solution(int(i)) for i in allowed]
    scores = np.zeros(len(states.score))
    if len(allowed):
        scores[allowed] = instance.evaluate([(solution.problem, solution.picks) for solution in solutions])
    proven = bool(np.all(states.ways == 1))
    states = replace(states, score=scores, ways=np.ones(len(scores), np.int64))
    return StateList(states, budgets, instance.column, proven)
