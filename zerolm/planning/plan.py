"""Exact plans of a cut within budgets: which layers, and how many KV groups and neurons in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, Protocol, TypeVar

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.costs import COSTS
from zerolm.planning.equal_layers import Side, best_pair, fits
from zerolm.planning.part_costs import PARAMS, Choices, LayerCosts, PartCosts
from zerolm.solvers.limits import bounded_columns, single_limits
from zerolm.solvers.problem import Budgets, Problem, at_least
from zerolm.solvers.proven import Proven
from zerolm.spaces import CandidateTable
from zerolm.statistics import TOLERANCE
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import Cut, Dimensions
from zerolm.units.stream.narrowing import Width

REMOVED: Final = (0, 0)
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
    def sizes(self) -> tuple[object, ...]:
        """The sizes of the cut."""
        return sizes_of(self.cut, self.width)


class Ranked(Protocol):
    """A plan that can be ranked with others: its score, and the sizes that it keeps."""

    @property
    def score(self) -> float: ...

    @property
    def sizes(self) -> tuple[object, ...]: ...


R = TypeVar("R", bound=Ranked)


def sizes_of(cut: Cut, width: Width | None) -> tuple[object, ...]:
    """Return the width of the stream, and of each kept layer its number, KV groups and neurons."""
    return width, *((kept.layer, len(kept.groups), len(kept.ffn)) for kept in cut.layers)


def finalists(ranked: Sequence[Sequence[R]], most: int) -> list[R]:
    """Return at most ``most`` plans of different sizes: the best of each ranking, then the second of each.

    Losses as cut and losses after repair rank plans differently: least squares recovers units better than the
    stream, and deep cuts less well than expected. No single ranking is right for all models, so plans of both
    rankings and of their mean are measured. The score is minus a loss.
    """
    near = [[plan for plan in plans if plan.score >= NEAR * min(0.0, plans[0].score)] for plans in ranked]
    in_turn = (plan for row in zip_longest(*near) for plan in row if plan is not None)
    different: dict[tuple[object, ...], R] = {}
    for plan in in_turn:
        different.setdefault(plan.sizes, plan)
    return list(different.values())[:most]


def plan_uniform(
    parent: Dimensions, criterion: Criterion, choices: Choices, part_costs: PartCosts, budgets: Budgets
) -> Planned:
    """Return the best cut with the same sizes in all kept layers; ties go to the fewest parameters.

    Every depth, number of groups and number of neurons is tried, each with its best-scoring layers. That is
    optimal where all layers cost the same. Raises ``ValueError`` where no cut keeps the budgets.
    """
    gain, without = _gains(parent, criterion, choices)
    wanted = gain.copy()
    wanted[sorted(choices.required_layers)] = np.inf
    order = np.argsort(-wanted, axis=0, kind="stable")  # (layers, groups, ffn)
    best_first = np.take_along_axis(gain, order, axis=0).cumsum(axis=0)
    depths = np.array(choices.depth)
    scores = best_first[depths - 1] + without.sum()  # (depths, groups, ffn)
    layers = np.array([_by_size(layer, choices) for layer in part_costs.layers])  # (layers, groups, ffn, 6)
    costs = (
        np.take_along_axis(layers, order[..., None], axis=0).cumsum(axis=0)[depths - 1] + part_costs.outside
    )
    allowed = budgets.allow(costs)
    if not allowed.any():
        raise ValueError(_infeasible(budgets, costs.reshape(-1, len(COSTS)).min(axis=0)))
    top = scores[allowed].max()
    equal = allowed & (scores >= top - TOLERANCE * abs(top))
    d, g, f = np.unravel_index(np.argmin(np.where(equal, costs[..., PARAMS], np.inf)), scores.shape)
    groups, ffn = choices.groups[g], choices.ffn[f]
    kept = np.sort(order[: depths[d], g, f]).tolist()
    named = dict(zip(COSTS, costs[d, g, f].tolist(), strict=True))
    cut = Cut.of(parent, kept, lambda layer: (groups, ffn), criterion.choose)
    optimal = part_costs.alike is not None or depths.tolist() == [parent.depth]
    return Planned(cut, named, float(scores[d, g, f]), optimal)


def _by_size(layer: LayerCosts, choices: Choices) -> Ints:
    """Return the costs of a layer at each number of groups and of neurons, (groups, ffn, 6)."""
    units = [[layer.groups[g] + layer.ffn[f] for f in choices.ffn] for g in choices.groups]
    return np.asarray(layer.rest + np.array(units))


def _gains(parent: Dimensions, criterion: Criterion, choices: Choices) -> tuple[Floats, Floats]:
    """Return the score that each layer adds at each size, (layers, groups, ffn), and the score without it."""
    groups, ffn = (
        np.array([[criterion.score(layer, kind, size) for size in sizes] for layer in range(parent.depth)])
        for kind, sizes in (("groups", choices.groups), ("ffn", choices.ffn))
    )
    without = np.array([criterion.without(layer) or 0.0 for layer in range(parent.depth)])
    return groups[:, :, None] + ffn[:, None, :] - without[:, None, None], without


def _side(
    parent: Dimensions, criterion: Criterion, choices: Choices, layer_costs: LayerCosts, kind: str
) -> Side:
    sizes = choices.groups if kind == "groups" else choices.ffn
    table = layer_costs.groups if kind == "groups" else layer_costs.ffn
    scores = [[criterion.score(layer, kind, size) for size in sizes] for layer in range(parent.depth)]
    return Side(np.array(sizes), np.array([table[size] for size in sizes]), np.array(scores))


def plan_per_layer(
    parent: Dimensions, criterion: Criterion, choices: Choices, part_costs: PartCosts, budgets: Budgets
) -> Planned:
    """Return the best cut with separate sizes in every layer, by exact search over all of them.

    Layers may be removed where the criterion scores a network without them.
    """
    keeps_all_layers = criterion.without(0) is None or len(choices.depth) == 1
    if keeps_all_layers and not choices.by_layer and part_costs.alike:
        groups, ffn = (
            _side(parent, criterion, choices, part_costs.alike, kind) for kind in ("groups", "ffn")
        )
        if fits(groups, ffn):
            return _on_lattice(parent, criterion, part_costs, budgets, groups, ffn)
    return _by_search(parent, criterion, choices, part_costs, budgets)


def _on_lattice(
    parent: Dimensions, criterion: Criterion, part_costs: PartCosts, budgets: Budgets, groups: Side, ffn: Side
) -> Planned:
    """Return the best cut where costs depend on totals alone."""
    fixed = part_costs.fixed + parent.depth * (groups.costs[0] + ffn.costs[0])
    pair = best_pair(groups, ffn, fixed, budgets)
    if pair is None:
        raise ValueError(_infeasible(budgets, fixed))
    sizes = list(zip(groups.sizes[pair[0]].tolist(), ffn.sizes[pair[1]].tolist(), strict=True))
    cut = Cut.of(parent, range(parent.depth), sizes.__getitem__, criterion.choose)
    return Planned(
        cut, dict(zip(COSTS, part_costs.of(dict(enumerate(sizes))).tolist(), strict=True)), pair[2], True
    )


def _by_search(
    parent: Dimensions, criterion: Criterion, choices: Choices, part_costs: PartCosts, budgets: Budgets
) -> Planned:
    """Return the best cut where layers may be removed, or where their sizes or costs differ."""
    column = next(iter(bounded_columns(budgets)), PARAMS)
    layers = [_candidates(parent, criterion, choices, part_costs, layer) for layer in range(parent.depth)]
    problem = Problem(tuple((layer.table, 1) for layer in layers), part_costs.fixed)
    several = single_limits([problem], budgets, column) is None
    engine = Proven([problem], budgets, column, several)
    first = next(engine.in_order(), None)
    if first is None:
        raise ValueError(_infeasible(budgets, problem.extreme_costs[0]))
    solution, bound = first
    picked = [layer.sizes[chosen[0]] for layer, chosen in zip(layers, solution.picks, strict=True)]
    kept_layers = [layer for layer, size in enumerate(picked) if size != REMOVED]
    if not kept_layers:
        raise ValueError("only a network without any layer keeps the budgets")
    return Planned(
        Cut.of(parent, kept_layers, picked.__getitem__, criterion.choose),
        dict(zip(COSTS, solution.costs.tolist(), strict=True)),
        solution.score,
        bool(at_least(solution.score, bound)),
    )


@dataclass(frozen=True, eq=False)
class LayerCandidates:
    """The possible ``sizes`` (groups, neurons) of a layer, ``REMOVED`` for its removal, and their table."""

    sizes: list[tuple[int, int]]
    table: CandidateTable


def _candidates(
    parent: Dimensions, criterion: Criterion, choices: Choices, part_costs: PartCosts, layer: int
) -> LayerCandidates:
    """Return all pairs of sizes of a layer that no other pair dominates in score and in every cost."""
    groups, ffn = choices.of(layer)
    scores = np.add.outer(
        [criterion.score(layer, "groups", size) for size in groups],
        [criterion.score(layer, "ffn", size) for size in ffn],
    ).ravel()  # (pairs,)
    layer_costs = part_costs.layers[layer]
    costs = np.array([layer_costs.groups[g] + layer_costs.ffn[f] for g in groups for f in ffn])  # (pairs, 6)
    sizes = [(g, f) for g in groups for f in ffn]
    without_layer = criterion.without(layer)
    if without_layer is not None and len(choices.depth) > 1 and layer not in choices.required_layers:
        scores, costs = np.append(scores, without_layer), np.vstack([costs, -layer_costs.rest])
        sizes.append(REMOVED)
    best = _undominated(scores, costs)
    return LayerCandidates(
        [sizes[i] for i in best], CandidateTable(scores[best], costs[best], (1,) * len(best))
    )


def _undominated(scores: Floats, costs: Ints) -> Ints:
    """Return the undominated candidates."""
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
