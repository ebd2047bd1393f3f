"""The cost of each bound: the best score with that bound relaxed alone."""

from __future__ import annotations

from collections.abc import Iterator

from zerolm.solvers.choice import Choice
from zerolm.solvers.instance import Instance
from zerolm.solvers.problem import Budgets, affordable
from zerolm.solvers.result import Binding, BoundsTest
from zerolm.solvers.solver import Solver
from zerolm.spaces import Bound, shape_text
from zerolm.statistics import TOLERANCE


def tested_bounds(instance: Instance, best: Choice) -> BoundsTest:
    """Return which bounds, each relaxed alone, allow a better score: by 10 %, or a range opened whole."""
    binding, free = list[Binding](), list[str]()
    for kind, bound, budgets in _relaxations(instance, best):
        solver = _solver(instance, bound, budgets)
        solution = solver.first()
        if solution is None:
            continue
        score = solution.score
        gain = (score - best.score) / abs(best.score) if best.score else None
        if score > best.score if gain is None else gain > TOLERANCE:
            words = shape_text(solver.choice(solution).architecture) if kind == "range" else ""
            binding.append(Binding(bound.name, kind, bound.at, bound.wider_to, score, gain, words))
        else:
            free.append(bound.name)
    return BoundsTest(True, sorted(binding, key=lambda costly: costly.score, reverse=True), free)


def _relaxations(instance: Instance, best: Choice) -> Iterator[tuple[str, Bound, Budgets]]:
    """Yield the kind of each bound that may cost score, the bound, and the budgets with it relaxed."""
    space, budgets = instance.space, instance.budgets
    for side, column in budgets.active(instance.problems):
        at = budgets.limit(side, column)
        to = at * 11 // 10 if side == "max" else at * 9 // 10
        bound = Bound(f"{side}_{budgets.names[column]}", at, to, space)
        yield "budget", bound, budgets.replaced(side, column, to)
    for bound in space.bounds(best.architecture):
        yield "range" if isinstance(bound.at, str) else "shape", bound, budgets


def _solver(instance: Instance, bound: Bound, budgets: Budgets) -> Solver:
    """Return the cheapest proof of an instance with one bound wider."""
    setup = instance.setup
    backbones = instance.backbones if bound.wider is instance.space else list(bound.wider.backbones())
    able = affordable(backbones, setup.costs, budgets, setup.columns)
    return Solver.of(Instance.of(bound.wider, able, instance.score, budgets, setup))
