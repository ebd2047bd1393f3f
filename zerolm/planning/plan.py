"""Exact plans of a cut within budgets: which layers, and how many units of each kind in each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product, zip_longest
from typing import Final, TypeVar

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.costs import COSTS
from zerolm.planning.part_costs import PARAMS, Choices, PartCosts, outer_sum
from zerolm.solvers.problem import Budgets, Problem, at_least, bounded_columns, single_limits
from zerolm.solvers.proven import Proven
from zerolm.solvers.solver import Infeasible
from zerolm.spaces import CandidateTable
from zerolm.statistics import TOLERANCE
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import Cut, Dimensions
from zerolm.units.stream.narrowing import Width
from zerolm.units.within_layers import NAMES, UNITS, LayerSizes

REMOVED: Final = (0,) * len(NAMES)
NEAR: Final = 2.0
"""Plans with a predicted loss above this multiple of the best one's are not measured."""


@dataclass(frozen=True, eq=False)
class Planned:
    """A cut with its costs by name, its score, and whether it is proven optimal for its shape.

    ``width`` is the width of the residual stream that it was planned for, None for the parent's.
    """

    cut: Cut
    costs: dict[str, int]
    score: float
    optimal: bool
    width: Width | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is cut, including the stream."""
        return self.cut.is_whole and self.width is None

    @property
    def sizes(self) -> tuple[object, ...]:
        """The width of the stream, and of each kept layer its number and its sizes."""
        return self.width, *((kept.layer, *kept.sizes) for kept in self.cut.layers)

    @property
    def in_words(self) -> str:
        """A description of the sizes, with the width of the stream."""
        counts, width = zip(*self.cut.sizes.values(), strict=True), self.width
        spans = ("-".join(f"{size:,}" for size in sorted({min(each), max(each)})) for each in counts)
        hidden = width.hidden if width else self.cut.parent.hidden
        untied = " with its own head" if width and not width.tied else ""
        return f"{len(self.cut.layers)} layers, hidden {hidden:,}{untied}, {of_units(spans)}"


P = TypeVar("P", bound=Planned)


def of_units(counts: Iterable[str]) -> str:
    """Return numbers of units of each kind in words: ``KV groups 2, FFN neurons 768``."""
    return ", ".join(f"{unit.shown} {count}" for unit, count in zip(UNITS, counts, strict=True))


def finalists(ranked: Sequence[Sequence[P]], most: int) -> list[P]:
    """Return at most ``most`` plans of different sizes: the best of each ranking, then the second of each.

    Losses as cut and losses after repair rank plans differently: least squares recovers units better than the
    stream, and deep cuts less well than expected. No single ranking is right for all models, so plans of both
    rankings and of their mean are measured. The score is minus a loss.
    """
    near = [[plan for plan in plans if plan.score >= NEAR * min(0.0, plans[0].score)] for plans in ranked]
    in_turn = (plan for row in zip_longest(*near) for plan in row if plan is not None)
    different: dict[tuple[object, ...], P] = {}
    for plan in in_turn:
        different.setdefault(plan.sizes, plan)
    return list(different.values())[:most]


def plan_uniform(
    parent: Dimensions, criterion: Criterion, choices: Choices, part_costs: PartCosts, budgets: Budgets
) -> Planned:
    """Return the best cut with the same sizes in all kept layers; ties go to the fewest parameters.

    Every depth and every combination of numbers of units is tried, each with its best-scoring layers. That
    is optimal where all layers have the same costs of those that budgets bound. Raises ``Infeasible`` where
    no cut keeps the budgets.
    """
    gain, without = _gains(parent, criterion, choices)
    wanted = gain.copy()
    wanted[sorted(choices.required_layers)] = np.inf
    order = np.argsort(-wanted, axis=0, kind="stable")  # (layers, n1, n2, ...)
    best_first = np.take_along_axis(gain, order, axis=0).cumsum(axis=0)
    depths = np.array(choices.depth)
    scores = best_first[depths - 1] + without.sum()  # (depths, n1, n2, ...)
    layers = np.array([layer.table(choices.units) for layer in part_costs.layers])  # (layers, n1, n2, ..., 6)
    in_order = np.take_along_axis(layers, order[..., None], axis=0).cumsum(axis=0)
    costs = in_order[depths - 1] + part_costs.outside
    allowed = budgets.allow(costs)
    if not allowed.any():
        raise Infeasible(_infeasible(budgets, costs.reshape(-1, len(COSTS)).min(axis=0)))
    top = scores[allowed].max()
    equal = allowed & (scores >= top - TOLERANCE * abs(top))
    d, *at = np.unravel_index(np.argmin(np.where(equal, costs[..., PARAMS], np.inf)), scores.shape)
    sizes = tuple(counts[place] for counts, place in zip(choices.units, at, strict=True))
    kept = np.sort(np.moveaxis(order, 0, -1)[tuple(at)][: depths[d]]).tolist()
    named = dict(zip(COSTS, costs[d, *at].tolist(), strict=True))
    cut = Cut.of(parent, kept, lambda layer: sizes, criterion.choose)
    bounded = layers[..., bounded_columns(budgets)]
    optimal = bool((bounded == bounded[0]).all()) or depths.tolist() == [parent.depth]
    return Planned(cut, named, float(scores[d, *at]), optimal)


def unit_scores(parent: Dimensions, criterion: Criterion, choices: Choices) -> list[Floats]:
    """Return the score of each number of units in each layer, (layers, n) for each of ``UNITS``."""
    layers = (_layer_scores(criterion, layer, choices.units) for layer in range(parent.depth))
    return [np.array(scores) for scores in zip(*layers, strict=True)]


def _layer_scores(criterion: Criterion, layer: int, units: Sequence[Sequence[int]]) -> list[Floats]:
    """Return the score of each number of units in a layer, (n,) for each of ``UNITS``."""
    pairs = zip(NAMES, units, strict=True)
    return [np.array([criterion.score(layer, kind, count) for count in counts]) for kind, counts in pairs]


def _gains(parent: Dimensions, criterion: Criterion, choices: Choices) -> tuple[Floats, Floats]:
    """Return the score that each layer adds at each size, (layers, n1, n2, ...), and the score without it."""
    scores = outer_sum(unit_scores(parent, criterion, choices), leading=1)
    without = np.array([criterion.without(layer) or 0.0 for layer in range(parent.depth)])
    return scores - without.reshape(-1, *(1,) * len(NAMES)), without


def plan_per_layer(
    parent: Dimensions, criterion: Criterion, choices: Choices, part_costs: PartCosts, budgets: Budgets
) -> Planned:
    """Return the best cut with separate sizes in every layer, by exact search over all of them.

    Layers may be removed where the criterion scores a network without them. Where it prefers a network
    without any layer, the cut has equal sizes. Raises ``Infeasible`` where no cut keeps the budgets.
    """
    column = next(iter(bounded_columns(budgets)), PARAMS)
    layers = [_candidates(parent, criterion, choices, part_costs, layer) for layer in range(parent.depth)]
    problem = Problem(tuple((table, 1) for _, table in layers), part_costs.fixed)
    several = single_limits([problem], budgets, column) is None
    engine = Proven([problem], budgets, column, several)
    first = next(engine.in_order(), None)
    if first is None:
        raise Infeasible(_infeasible(budgets, problem.extreme_costs[0]))
    solution, bound = first
    picked = [sizes[chosen[0]] for (sizes, _), chosen in zip(layers, solution.picks, strict=True)]
    kept_layers = [layer for layer, size in enumerate(picked) if size != REMOVED]
    if not kept_layers:
        return replace(plan_uniform(parent, criterion, choices, part_costs, budgets), optimal=False)
    return Planned(
        Cut.of(parent, kept_layers, picked.__getitem__, criterion.choose),
        dict(zip(COSTS, solution.costs.tolist(), strict=True)),
        solution.score,
        bool(at_least(solution.score, bound)),
    )


def _candidates(
    parent: Dimensions, criterion: Criterion, choices: Choices, part_costs: PartCosts, layer: int
) -> tuple[list[LayerSizes], CandidateTable]:
    """Return all sizes of a layer that no others dominate in score and in every cost, and their table.

    The removal of the layer has the size ``REMOVED``.
    """
    units, layer_costs = choices.of(layer), part_costs.layers[layer]
    scores = outer_sum(_layer_scores(criterion, layer, units)).ravel()  # (sizes,)
    costs = (layer_costs.table(units) - layer_costs.rest).reshape(len(scores), -1)  # (sizes, 6)
    sizes: list[LayerSizes] = list(product(*units))
    without_layer = criterion.without(layer)
    if without_layer is not None and len(choices.depth) > 1 and layer not in choices.required_layers:
        scores, costs = np.append(scores, without_layer), np.vstack([costs, -layer_costs.rest])
        sizes.append(REMOVED)
    best = _undominated(scores, costs)
    return [sizes[i] for i in best], CandidateTable(scores[best], costs[best], (1,) * len(best))


def _undominated(scores: Floats, costs: Ints) -> Ints:
    order = np.lexsort((*costs.T, -scores))
    kept: list[int] = []
    for i in order:
        if not kept or not (costs[kept] <= costs[i]).all(axis=1).any():
            kept.append(int(i))
    return np.sort(np.array(kept))


def _infeasible(budgets: Budgets, least: Ints | None) -> str:
    broken = [
        f"max_{name} {budgets.high[i]} would have to be at least {least[i]}"
        for i, name in enumerate(COSTS)
        if least is not None and least[i] > budgets.high[i]
    ]
    return "no cut keeps the budgets" + (f": {', and '.join(broken)}" if broken else " together")
