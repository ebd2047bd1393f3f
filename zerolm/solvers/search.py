"""The search of a space under budgets: method, best architectures, pick, front, certificate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from zerolm.costs import CostModel
from zerolm.progress import Progress, silent
from zerolm.scores import SCORES, Score, make_score
from zerolm.settings import REQUIRED, check_known
from zerolm.solvers.engine import Count
from zerolm.solvers.evolution import USUAL_SIZES, Evolution
from zerolm.solvers.instance import Instance, Setup
from zerolm.solvers.methods import METHOD_NAMES
from zerolm.solvers.problem import Budgets, affordable, at_least, near
from zerolm.solvers.result import (
    Baseline,
    Binding,
    BoundsTest,
    Certificate,
    Choice,
    ParetoFront,
    Plateau,
    Question,
    SearchResult,
)
from zerolm.solvers.solver import Infeasible, Solver
from zerolm.spaces import Bound, SearchSpace, make_space, shape_text
from zerolm.statistics import TOLERANCE


def search(
    space: SearchSpace | str,
    score: Score | str = "geo",
    *,
    budgets: dict[str, int] | None = None,
    costs: CostModel | None = None,
    options: dict[str, Any] | None = None,
    top: int = 10,
    method: str = "auto",
    seed: int = 0,
    sizes: Evolution = USUAL_SIZES,
    compare: bool = True,
    floor: float | None = None,
    progress: Progress = silent,
) -> SearchResult:
    """Return the best architectures of ``space`` by ``score`` within ``budgets``.

    ``budgets`` maps ``max_`` or ``min_`` of a cost to an integer, such as ``{"max_params": 40_000_000}``;
    ``costs`` says how the network is run; ``options`` are the score's, such as ``{"alpha": 1.1}``;
    ``sizes`` are those of an evolution. ``compare`` also asks what the baselines choose and what each bound
    costs. The pick scores at least ``floor`` where anything within the budgets does. Raises ``Infeasible``
    where nothing fits and ``ValueError`` for arguments that make no sense.
    """
    start = time.perf_counter()
    check_known("method", method, METHOD_NAMES)
    if top < 1:
        raise ValueError(f"top must be at least 1, not {top}")
    space = make_space(space) if isinstance(space, str) else space
    conditions = costs or CostModel()
    costs = conditions.of_task(space.task)
    if space.task != "next" and any(name.endswith("kv_bytes") for name in budgets or {}):
        raise ValueError(
            f"{space.name} predicts no next token and keeps no KV cache: give no budget of kv_bytes"
        )
    score = make_score(score, costs, **(options or {})) if isinstance(score, str) else score
    setup = Setup(costs, seed, sizes)
    solver = _solver(space, score, Budgets.of(budgets or {}, costs.names), setup, method, progress)
    best, bound = solver.best(top)
    if not best:
        raise Infeasible.of(solver)
    top_score = best[0].score
    progress("counting ties, choosing the pick")
    ties, near_ties = (solver.engine.count(least) for least in (top_score, near(top_score)))
    pick = solver.choice(solver.engine.cheapest(_least(score, top_score, floor)))
    progress("computing the Pareto front")
    points = [solver.choice(point) for point in solver.engine.front()]
    gap = max(0.0, bound - top_score) / max(abs(top_score), 1e-300)
    certificate = _certificate(solver, gap, (ties, near_ties), start)
    compared = _comparison(solver, best[0], progress) if compare else ([], BoundsTest())
    return SearchResult(
        Question(space, score.name, score.options, dict(budgets or {}), conditions.conditions),
        certificate,
        pick,
        best,
        ParetoFront(costs.names[solver.instance.column], points, solver.engine.complete_front),
        Plateau(ties, near_ties, solver.landscape()),
        *compared,
    )


def _solver(
    space: SearchSpace, score: Score, budgets: Budgets, setup: Setup, method: str, progress: Progress
) -> Solver:
    """Return the engine of a method with its instance; ``ValueError`` where the score is always 0."""
    progress(f"building the tables of {space.name}")
    backbones = list(space.backbones())
    if score.sees_choices:
        backbones = [backbone.apart for backbone in backbones]
    solver = Solver.of(Instance.of(space, backbones, score, budgets, setup), method)
    if score.additive and not any(problem.scored for problem in solver.instance.problems):
        raise ValueError(f"{score.name} is 0 for every architecture of {space.name} here; name another score")
    progress(f"searching {space.name} ({solver.method})")
    return solver


def _least(score: Score, best: float, floor: float | None) -> float:
    least = best if score.measured else near(best)
    if floor is not None and at_least(best, floor):
        least = max(least, min(floor, best))
    return least


def _certificate(solver: Solver, gap: float, counts: tuple[Count, Count], start: float) -> Certificate:
    optimal = solver.engine.optimal
    return Certificate(
        solver.method,
        optimal and gap <= TOLERANCE,
        gap if optimal else None,
        round(time.perf_counter() - start, 3),
        "exact" if all(count.exact for count in counts) else "at least",
    )


def _comparison(solver: Solver, best: Choice, progress: Progress) -> tuple[list[Baseline], BoundsTest]:
    """Return the choices of the baselines, and the bounds that cost score where that can be proven."""
    progress("searching by the baselines")
    choices = list(_baselines(solver.instance))
    if not (solver.engine.optimal and solver.instance.score.additive):
        return choices, BoundsTest()
    progress("relaxing one bound at a time")
    return choices, tested_bounds(solver.instance, best)


def _baselines(instance: Instance) -> Iterator[Baseline]:
    """Yield the choice of every baseline score but the instance's own, scored by that too."""
    for name in SCORES:
        entry = SCORES.entry(name)
        needs = any(setting.default is REQUIRED for setting in entry.options)
        if not entry.value.baseline or needs or name == instance.score.name:
            continue
        solver = Solver.of(instance.scored_by(make_score(name, instance.setup.costs)))
        solution = solver.first()
        if solution is not None:
            choice = solver.choice(solution)
            yield Baseline(name, choice.score, replace(choice, score=instance.score.of(choice.architecture)))


def tested_bounds(instance: Instance, best: Choice) -> BoundsTest:
    """Return which bounds, each relaxed alone, allow a better score: by 10 %, or a range opened whole."""
    binding, free = list[Binding](), list[str]()
    for kind, bound, budgets in _relaxations(instance, best):
        solver = _relaxed(instance, bound, budgets)
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


def _relaxed(instance: Instance, bound: Bound, budgets: Budgets) -> Solver:
    """Return the cheapest proof of an instance with one bound wider."""
    setup = instance.setup
    backbones = instance.backbones if bound.wider is instance.space else list(bound.wider.backbones())
    able = affordable(backbones, setup.costs, budgets, setup.columns)
    return Solver.of(Instance.of(bound.wider, able, instance.score, budgets, setup))
