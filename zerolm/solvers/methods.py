"""The methods of a search: each is one entry of a table, with what makes its engine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import numpy as np

from zerolm.scores import Score
from zerolm.solvers.engine import Engine, StateList
from zerolm.solvers.evolution import Evolution, evolution
from zerolm.solvers.exhaustive import States, count_states, listable
from zerolm.solvers.instance import Instance
from zerolm.solvers.problem import Picks, Problem, single_limits
from zerolm.solvers.proven import Proven
from zerolm.solvers.sampling import Sample, nsga2, pymoo_installed, random_sample, scored
from zerolm.solvers.tabled import best_of_costs
from zerolm.solvers.tied import Tied, tied

RANDOM_DRAWS: Final = 10_000
"""Architectures that the method ``random`` draws."""
GUIDED: Final = 300
"""Architectures of each guide of a score, and points of its front."""
WHOLE_LIMIT: Final = 100_000
"""Architectures up to which a score that is not additive is evaluated on all of them."""


@dataclass(frozen=True)
class Method:
    """A way to search: ``engine`` answers an instance.

    It takes scores that have one of its ``needs``: a ``sum`` over layers, ``guides``, a ``table`` of choices;
    any score where it needs nothing. It ``proves`` what it says where the score allows.
    """

    engine: Callable[[Instance], Engine]
    needs: tuple[str, ...] = ()
    proves: bool = False

    def suits(self, score: Score) -> bool:
        has = {"sum": score.additive, "guides": bool(score.guides), "table": score.table is not None}
        return not self.needs or any(has[need] for need in self.needs)


def solved(instance: Instance, method: str = "auto") -> tuple[str, Engine]:
    """Return the method's name and its engine; ``auto`` takes the cheapest proof, else the best guess.

    ``ValueError`` where the method cannot search by the score, or not within these budgets.
    """
    if method == "auto":
        method = _cheapest(instance)
    elif not SEARCH_METHODS[method].suits(instance.score):
        raise ValueError(_unsuited(method, instance.score))
    return method, SEARCH_METHODS[method].engine(instance)


def _cheapest(instance: Instance) -> str:
    score, problems = instance.score, instance.problems
    if score.additive:
        if listable(problems) or tied(problems):
            return "exhaustive"
        return "milp" if single_limits(problems, instance.budgets, instance.column) is None else "exact"
    if score.table:
        return "exact"
    if count_states(problems) <= WHOLE_LIMIT:
        return "exhaustive"
    if score.guides:
        return "rerank"
    return "nsga2" if pymoo_installed() else "random"


def _unsuited(name: str, score: Score) -> str:
    sums = [other for other, method in SEARCH_METHODS.items() if "sum" in method.needs]
    fit = [other for other, method in SEARCH_METHODS.items() if method.suits(score) and other not in sums]
    if score.additive:
        return f"score {score.name!r} is additive: nothing is to be re-ranked; use {_or(sums)}"
    if name in sums:
        return f"score {score.name!r} is not additive; use {_or(fit)}"
    fit = [other for other in fit if not SEARCH_METHODS[other].proves]
    return f"score {score.name!r} names no closed forms to guide it; use {_or(fit)}"


def _or(names: list[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]])


def _one_limit(instance: Instance) -> Engine:
    """Return dynamic programming under one upper budget, or the best of all costs by a table."""
    if instance.score.table is None:
        return Proven(instance.problems, instance.budgets, instance.column, False)
    states = best_of_costs(instance.backbones, instance.problems, instance.budgets, instance.score.table)
    return StateList(states, instance.budgets, instance.column, True, complete=False)


def _listed(instance: Instance) -> Engine:
    """Return an engine that knows every architecture: in closed form where layers are alike, else one by one.

    Networks of a score that is no sum are built within the budgets alone. A state is one network there;
    nothing is proven where it stands for several: they may differ in score. ``ValueError`` where there are
    too many.
    """
    problems, budgets, column = instance.problems, instance.budgets, instance.column
    if instance.score.additive and tied(problems):
        return Tied(problems, budgets, column)
    states = States.of(problems)
    if instance.score.additive:
        return StateList(states, budgets, column, True)
    if len(states.score) > WHOLE_LIMIT:
        raise ValueError(
            f"method 'exhaustive' would build {len(states.score)} architectures, more than {WHOLE_LIMIT}; "
            f"use nsga2, evolution or random"
        )
    allowed = np.flatnonzero(budgets.allow(states.costs))
    solutions = [states.solution(int(i)) for i in allowed]
    scores = np.zeros(len(states.score))
    if solutions:
        scores[allowed] = instance.evaluate([(solution.problem, solution.picks) for solution in solutions])
    proven = bool(np.all(states.ways == 1))
    states = replace(states, score=scores, ways=np.ones(len(scores), np.int64))
    return StateList(states, budgets, column, proven)


def _sampled(sample: Callable[[Instance], Sample]) -> Callable[[Instance], Engine]:
    """Return the maker of an engine that knows a sample and proves nothing."""

    def engine(instance: Instance) -> Engine:
        states = sample(instance)
        if not instance.score.additive:
            # What shares a shape need not share a score: only what was looked at counts.
            states = replace(states, ways=np.ones(len(states.score), np.int64))
        return StateList(states, instance.budgets, instance.column, False)

    return engine


def _reranked(instance: Instance) -> Sample:
    """Return the best architectures within the budgets, and the fronts, of the score's guides, scored."""
    pairs: dict[tuple[int, Picks], None] = {}
    for guide in instance.score.guides:
        _, engine = solved(instance.scored_by(guide))
        best = [solution for solution, _ in islice(engine.in_order(), GUIDED)]
        if not best:  # no other guide has any within the budgets
            break
        front = engine.front()
        spread = [front[i] for i in np.unique(np.linspace(0, len(front) - 1, GUIDED).astype(int))]
        pairs |= dict.fromkeys(
            (solution.problem, _split(solution.picks, instance.problems[solution.problem]))
            for solution in (*best, *spread)
        )
    return scored(instance.problems, list(pairs), instance.evaluate)


def _split(picks: Picks, problem: Problem) -> Picks:
    """Return picks of merged blocks as those of the blocks that a problem has."""
    layers = itertools.chain.from_iterable(picks)
    return tuple(tuple(islice(layers, count)) for _, count in problem.blocks)


def _nsga2(instance: Instance) -> Sample:
    seed = instance.setup.seed
    return nsga2(instance.problems, instance.evaluate, instance.budgets, instance.column, seed=seed)


def _evolved(instance: Instance, sizes: Evolution | None = None) -> Sample:
    setup = instance.setup
    return evolution(instance.problems, instance.evaluate, instance.budgets, setup.seed, sizes or setup.sizes)


def _drawn(instance: Instance) -> Sample:
    if instance.score.sees_choices:
        sizes = instance.setup.sizes
        return _evolved(instance, Evolution(sizes.population * sizes.generations, generations=1))
    return random_sample(instance.problems, instance.evaluate, RANDOM_DRAWS, instance.setup.seed)


SEARCH_METHODS: Final[Mapping[str, Method]] = {
    "exact": Method(_one_limit, ("sum", "table"), proves=True),
    "milp": Method(lambda one: Proven(one.problems, one.budgets, one.column, True), ("sum",), proves=True),
    "exhaustive": Method(_listed, proves=True),
    "rerank": Method(_sampled(_reranked), ("guides",)),
    "nsga2": Method(_sampled(_nsga2)),
    "evolution": Method(_sampled(_evolved)),
    "random": Method(_sampled(_drawn)),
}
METHOD_NAMES: Final = ("auto", *SEARCH_METHODS)
