"""The methods of a search: each is one entry of a table, with the file that makes its engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from zerolm.scores import Score
from zerolm.solvers.engine import Engine, StateList
from zerolm.solvers.evolution import Evolution, evolution
from zerolm.solvers.exhaustive import count_states, listable
from zerolm.solvers.instance import Instance
from zerolm.solvers.limits import single_limits
from zerolm.solvers.listing import WHOLE_LIMIT, listed
from zerolm.solvers.proven import Proven
from zerolm.solvers.reranking import reranked
from zerolm.solvers.sampling import Sample, nsga2, pymoo_installed, random_sample
from zerolm.solvers.tabled import best_of_costs
from zerolm.solvers.tied import tied

RANDOM_DRAWS: Final = 10_000
"""Architectures that the method ``random`` draws."""


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
        """Return whether a score has what the method needs."""
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
    """Return why a method cannot search by a score, and which can."""
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


def _programmes(instance: Instance) -> Engine:
    return Proven(instance.problems, instance.budgets, instance.column, True)


def _sampled(sample: Callable[[Instance], Sample]) -> Callable[[Instance], Engine]:
    """Return the maker of an engine that knows a sample and proves nothing."""

    def engine(instance: Instance) -> Engine:
        states = sample(instance)
        if not instance.score.additive:
            # What shares a shape need not share a score: only what was looked at counts.
            states = replace(states, ways=np.ones(len(states.score), np.int64))
        return StateList(states, instance.budgets, instance.column, False)

    return engine


def _guided(instance: Instance) -> Sample:
    return reranked(instance, lambda guide: solved(guide)[1])


def _nsga2(instance: Instance) -> Sample:
    seed = instance.setup.seed
    return nsga2(instance.problems, instance.evaluate, instance.budgets, instance.column, seed=seed)


def _evolved(instance: Instance) -> Sample:
    return _bred(instance, instance.setup.sizes)


def _drawn(instance: Instance) -> Sample:
    if instance.score.sees_choices:
        sizes = instance.setup.sizes
        return _bred(instance, Evolution(sizes.population * sizes.generations, generations=1))
    return random_sample(instance.problems, instance.evaluate, RANDOM_DRAWS, instance.setup.seed)


def _bred(instance: Instance, sizes: Evolution) -> Sample:
    seed = instance.setup.seed
    return evolution(instance.problems, instance.evaluate, instance.budgets, seed, sizes)


SEARCH_METHODS: Final[Mapping[str, Method]] = {
    "exact": Method(_one_limit, ("sum", "table"), proves=True),
    "milp": Method(_programmes, ("sum",), proves=True),
    "exhaustive": Method(listed, proves=True),
    "rerank": Method(_sampled(_guided), ("guides",)),
    "nsga2": Method(_sampled(_nsga2)),
    "evolution": Method(_sampled(_evolved)),
    "random": Method(_sampled(_drawn)),
}
METHOD_NAMES: Final = ("auto", *SEARCH_METHODS)
