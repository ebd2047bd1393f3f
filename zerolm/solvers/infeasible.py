"""Budgets that nothing keeps, explained."""

from __future__ import annotations

from zerolm.scores import make_score
from zerolm.solvers.problem import UNBOUNDED
from zerolm.solvers.solver import Solver


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
