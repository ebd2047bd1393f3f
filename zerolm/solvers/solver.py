"""An instance with the engine of a method: its answers as architectures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.costs import COSTS
from zerolm.scores import make_score
from zerolm.solvers.engine import PREFERENCE, Engine
from zerolm.solvers.instance import Instance
from zerolm.solvers.methods import solved
from zerolm.solvers.problem import UNBOUNDED, Solution, at_least
from zerolm.solvers.result import Choice, Peak
from zerolm.statistics import tie_ranks

EQUALS: Final = 200
"""Solutions beyond the last of the list that are looked at for an equal that is cheaper."""


@dataclass(frozen=True, eq=False)
class Solver:
    """An instance, the method that answers it, and the method's engine."""

    instance: Instance
    method: str
    engine: Engine

    @classmethod
    def of(cls, instance: Instance, method: str = "auto") -> Solver:
        """Return the solver by a method; ``ValueError`` where that cannot answer the instance."""
        return cls(instance, *solved(instance, method))

    def choice(self, solution: Solution) -> Choice:
        """Return the architecture of a solution, with its score and costs."""
        instance = self.instance
        architecture = instance.space.assemble(instance.backbones[solution.problem], solution.picks)
        costs = zip(instance.budgets.names, map(int, solution.costs), strict=True)
        return Choice(architecture, solution.score, dict(costs))

    def first(self) -> Solution | None:
        """Return the best solution, None where nothing keeps the budgets."""
        return next((solution for solution, _ in self.engine.in_order()), None)

    def best(self, top: int) -> tuple[list[Choice], float]:
        """Return the best distinct shapes in order, and the proven upper bound of the first.

        Of equals come first those with the smaller KV cache, then fewer MACs, then fewer parameters;
        where there are very many, of those that were looked at.
        """
        shapes: dict[object, list[Choice]] = {}
        bound, last = -np.inf, np.inf
        patience = 0 if self.engine.ordered else EQUALS
        for streamed, (solution, limit) in enumerate(self.engine.in_order()):
            bound = limit if not streamed else bound
            if len(shapes) >= top and (streamed >= top + patience or not at_least(solution.score, last)):
                break
            choice = self.choice(solution)
            shapes.setdefault(self._shape(choice), []).append(choice)
            last = solution.score if len(shapes) <= top else last
        choices = [_preferred(same) for same in shapes.values()]
        ranks = tie_ranks(np.array([choice.score for choice in choices]))
        order = sorted(range(len(choices)), key=lambda i: (-int(ranks[i]), _preference(choices[i])))
        choices = [choices[i] for i in order]
        if choices and not self.engine.ordered:
            first = self.choice(self.engine.cheapest(choices[0].score))
            key = first.architecture.shape_key()
            choices = [first, *(choice for choice in choices if choice.architecture.shape_key() != key)]
        return choices[:top], bound

    def landscape(self) -> list[Peak]:
        """Return the best score, or a bound of it, at each depth and width."""
        peaks: dict[tuple[int, float], float] = {}
        for index, score in self.engine.peaks().items():
            backbone = self.instance.backbones[index]
            key = backbone.depth, backbone.width
            peaks[key] = max(score, peaks.get(key, score))
        return [Peak(depth, width, score) for (depth, width), score in sorted(peaks.items())]

    def _shape(self, choice: Choice) -> object:
        """Return a key that is equal for choices of which only one is listed."""
        are_distinct = self.instance.score.sees_choices
        return choice.architecture.identity if are_distinct else choice.architecture.shape_key()


def _preferred(same: Sequence[Choice]) -> Choice:
    """Return the cheapest of one shape's choices (best first) that tie with the first."""
    return min((choice for choice in same if at_least(choice.score, same[0].score)), key=_preference)


def _preference(choice: Choice) -> list[int]:
    return [choice.costs[COSTS[column]] for column in PREFERENCE]


class Infeasible(ValueError):
    """No architecture of the space keeps the budgets."""

    @classmethod
    def of(cls, solver: Solver) -> Infeasible:
        """Return the error of a solver without a solution: it names the nearest budgets that can be kept."""
        instance = solver.instance
        if solver.engine.complete:
            return cls(_explanation(solver))
        proof = Solver.of(instance.scored_by(make_score("params", instance.setup.costs)))
        if proof.first() is None:
            return cls(_explanation(proof))
        others = "exact or milp" if instance.score.additive else "evolution"
        return cls(
            f"none of the architectures that {solver.method} looked at keeps the budgets; use {others}"
        )


def _explanation(solver: Solver) -> str:
    instance = solver.instance
    limits, hints = [], []
    for side, column in instance.budgets.active(instance.problems):
        limit = f"{side}_{instance.budgets.names[column]} {instance.budgets.limit(side, column)}"
        limits.append(limit)
        free = instance.budgets.replaced(side, column, UNBOUNDED if side == "max" else 0)
        nearest = solver.engine.extreme(side, column, free)
        if nearest is not None:
            hints.append(f"{limit} would have to be {'at least' if side == 'max' else 'at most'} {nearest}")
    reason = f"no architecture of {instance.space.name} keeps {', '.join(limits)}"
    return f"{reason}: {', or '.join(hints)}" if hints else f"{reason}, nor all but one of these bounds"
