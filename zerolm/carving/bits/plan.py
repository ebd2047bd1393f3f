"""Joint plans of cuts and quantisation types within a budget of bytes, exact for additive losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from zerolm.architecture import Bools, Floats, Ints
from zerolm.carving.bits.estimates import RoleEstimates, TypeEstimates
from zerolm.carving.bits.options import All, Best, Either, Options, Tree, least_loss
from zerolm.carving.bits.row_blocks import widths_in_file
from zerolm.costs import COSTS, CostModel
from zerolm.passes.matrix_moments import Place
from zerolm.planning.loss_table import LossTable
from zerolm.planning.part_costs import Choices, PartCosts, outer_sum, part_costs
from zerolm.planning.plan import Planned, of_units, unit_scores
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.sizes import choices, with_ranked_layers
from zerolm.solvers.problem import UNBOUNDED, Budgets
from zerolm.units.importance.criterion import Criterion, FirstUnits
from zerolm.units.kept_units import Cut, Dimensions, dimensions
from zerolm.units.within_layers import NAMES, UNITS, LayerSizes

MULTIPLIERS: Final = np.geomspace(1e-16, 1e-2, 85)
"""Multipliers of a byte for which the losses of all sizes are bounded."""
Places = tuple[int, ...]
"""The place of a number of units among its choices, for each of ``UNITS``."""
NEAR: Final = 2.0
"""Plans for a width with a loss above this multiple of the least one are not searched for."""
PRICES: Final = (1e-3, 1e3)
"""Range of the loss that is added for costs at their limits, in units of the loss within the bytes alone."""
STEPS: Final = 10
"""Number of bisections of the logarithm of that loss."""


@dataclass(frozen=True, eq=False)
class TypedPlan(Planned):
    """A cut with the ``types`` of its matrices by the parent's layer and role, and its bytes with these.

    Its loss is at most ``gap`` above the least one for its width.
    """

    types: Mapping[Place, str] = field(default_factory=dict)
    gap: float = 0.0

    @property
    def bytes(self) -> int:
        return self.costs["weight_bytes"]

    @property
    def loss(self) -> float:
        return -self.score


class Backbones:
    """The possible sizes of a child for one width of the stream, with their bytes and losses."""

    def __init__(self, estimates: TypeEstimates, choices: Choices, by: Criterion, within: Within) -> None:
        self.estimates, self.choices, self.by = estimates, choices, by
        self.parent = dimensions(estimates.checkpoint)
        self.losses, self.without_layer, self.stream_loss = _losses(self.parent, by, choices)
        self.roles = estimates.in_layers(choices, by)
        self.ends = estimates.outside(choices.width)
        self.plain = estimates.plain(choices)
        self.budget, self.costs, self.depth = within.bytes, within.costs, self.parent.depth

    @property
    def may_remove_layers(self) -> bool:
        return len(self.choices.depth) > 1

    def bounds(self, *, fixed: bool) -> Floats:
        """Return lower bounds of the loss for all sizes, equal in all layers, (depths, n1, n2, ...).

        With ``fixed`` depths the layers with the smallest loss by the cut alone are removed; otherwise any,
        and there is one depth.
        """
        best = np.array(-np.inf)
        for multiplier in MULTIPLIERS:
            layers = self._layers(multiplier)  # (layers, n1, n2, ...)
            if fixed:
                total = self._at_depths(layers)
            else:
                least = np.minimum(layers, self._without_layer) if self.may_remove_layers else layers
                total = least.sum(0)[None]
            best = np.maximum(best, total + self._ends_at(multiplier) - multiplier * self.budget)
        return best + self.stream_loss

    def _at_depths(self, layers: Floats) -> Floats:
        """Return the sums over kept layers plus the losses of removed ones, (depths, n1, n2, ...)."""
        order, depths = self.order, np.array(self.choices.depth)
        kept = np.take_along_axis(layers, order, axis=0).cumsum(axis=0)[depths - 1]
        removed = self.without_layer[order]
        of_removed = np.append(removed[::-1].cumsum(axis=0)[::-1], np.zeros_like(removed[:1]), axis=0)
        return np.asarray(kept + of_removed[depths])

    @cached_property
    def order(self) -> Ints:
        """The layers by the loss without them, the largest first, for all sizes; required ones are first."""
        more = outer_sum(self.losses, leading=1) - self._without_layer
        more[sorted(self.choices.required_layers)] = -np.inf
        return np.argsort(more, axis=0, kind="stable")

    @property
    def _without_layer(self) -> Floats:
        return self.without_layer.reshape(-1, *(1,) * len(UNITS))

    def bound(self) -> float:
        """Return a lower bound of the loss with separate sizes in every layer."""
        return max(self._bound_at(multiplier) for multiplier in MULTIPLIERS) + self.stream_loss

    def _bound_at(self, multiplier: float) -> float:
        layers = self._layers(multiplier).reshape(self.depth, -1).min(axis=1)
        if self.may_remove_layers:
            layers = np.minimum(layers, self.without_layer)
        return float(layers.sum() + self._ends_at(multiplier) - multiplier * self.budget)

    def _layers(self, multiplier: float) -> Floats:
        """Return the minimum of loss + multiplier x bytes of each layer for all sizes."""
        pairs = zip(self.losses, self.plain.units, strict=True)
        parts = [losses + multiplier * plain for losses, plain in pairs]
        rest = multiplier * self.plain.layer
        for role in self.roles.values():
            least = _least(role, multiplier)  # (layers, sizes)
            if role.unit is None:
                rest[role.layers] += least[:, 0]
            else:
                parts[role.unit][role.layers] += least
        parts[-1] = parts[-1] + rest[:, None]
        return np.asarray(outer_sum(parts, leading=1))

    def _ends_at(self, multiplier: float) -> float:
        least = (float(_least(role, multiplier)[0, 0]) for role in self.ends.values())
        return sum(least) + multiplier * self.plain.ends

    def tree(
        self, at: Places | None, kept: frozenset[int] | None = None, required_layer: int | None = None
    ) -> Tree:
        """Return the tree of all choices: of types for one size of all layers (``at``), or also of sizes.

        ``kept`` are the layers that are kept. Without it any layer may be removed, if depths are free, except
        for the layer ``required_layer``.
        """
        layers = [self._layer(layer, at, kept, required_layer) for layer in range(self.depth)]
        ends = [Options((None, role), *one.of(0, 0)) for role, one in self.ends.items()]
        plain = Options("ends", np.array([self.plain.ends]), np.array([self.stream_loss]))
        return All((*layers, *ends, plain))

    def _layer(
        self, layer: int, at: Places | None, kept: frozenset[int] | None, required_layer: int | None
    ) -> Tree:
        parts = [self._side(layer, kind, None if at is None else at[kind]) for kind in range(len(UNITS))]
        plain = Options((layer, "plain"), self.plain.layer[layer : layer + 1], np.zeros(1))
        with_layer, name = All((*parts, *self._tables(layer, None, 0), plain)), (layer, "kept")
        without_layer = Options(
            (layer, "removed"), np.zeros(1, np.int64), self.without_layer[layer : layer + 1]
        )
        if kept is None:
            is_required = layer == required_layer or layer in self.choices.required_layers
            may_go = self.may_remove_layers and not is_required
            return Either(name, (with_layer, without_layer) if may_go else (with_layer,))
        return Either(name, (with_layer,)) if layer in kept else without_layer

    def _side(self, layer: int, kind: int, place: int | None) -> Tree:
        """Return the tree of the units of a kind in a layer, of all its sizes or of the one with a place."""
        name, losses, plain = UNITS[kind].name, self.losses[kind][layer], self.plain.units[kind][layer]
        places = range(len(losses)) if place is None else (place,)
        if place is None and not (self._tables(layer, kind, 0) or plain.any() or losses.any()):
            places = (len(losses) - 1,)  # a layer without such units is not cut
        sizes = (
            All((*self._tables(layer, kind, at), Options((layer, name, "cut"), plain[[at]], losses[[at]])))
            for at in places
        )
        return Either((layer, name), tuple(sizes))

    def _tables(self, layer: int, kind: int | None, size: int) -> list[Options]:
        return [
            Options((layer, role), *one.of(layer, size))
            for role, one in self.roles.items()
            if one.unit == kind and layer in one.layers
        ]

    def plan(self, best: Best, at: Places | None, *, is_proven: bool) -> TypedPlan:
        picks, choices = best.picks, self.choices
        kept = [layer for layer in range(self.depth) if picks.get((layer, "kept")) == 0]
        sizes: dict[int, LayerSizes] = {}
        types: dict[Place, str] = {}
        for layer in kept:
            places = at or tuple(picks[layer, name] for name in NAMES)
            sizes[layer] = tuple(counts[place] for counts, place in zip(choices.units, places, strict=True))
            types |= {
                (layer, role): one.types[picks[layer, role]].name
                for role, one in self.roles.items()
                if layer in one.layers
            }
        types |= {(None, role): one.types[picks[None, role]].name for role, one in self.ends.items()}
        cut = Cut.of(self.parent, kept, sizes.__getitem__, self.by.choose)
        kept_sizes = replace(Choices.of_cut(cut), width=choices.width)
        costs = part_costs(self.estimates.checkpoint, kept_sizes, self.costs).of(cut.sizes)
        named = dict(zip(COSTS, costs.tolist(), strict=True)) | {"weight_bytes": best.bytes}
        return TypedPlan(cut, named, -best.loss, is_proven, choices.width, types)

    def best(
        self, at: Places | None, kept: frozenset[int] | None = None, below: float = np.inf
    ) -> Best | None:
        """Return the choice of least loss ``below`` a loss, with one size of all layers or one for each."""
        best = least_loss(self.tree(at, kept), self.budget, below)
        if best is None or any(best.picks.get((layer, "kept")) == 0 for layer in range(self.depth)):
            return best
        alternatives = (
            least_loss(self.tree(at, kept, layer), self.budget, below) for layer in range(self.depth)
        )
        return min(filter(None, alternatives), key=lambda choice: (choice.loss, choice.bytes), default=None)

    def limited(self, within: Within, below: float) -> TypedPlan | None:
        """Return a plan with separate sizes in every layer within all budgets; None if none is ``below``.

        Where the best plan within the bytes exceeds other costs, these add to the loss of every size, as
        little as keeps their budgets (Lagrange). That skips some plans, and bounds what they can gain.
        """
        best = self.best(None, below=below)
        if best is None:
            return None
        plan = self.plan(best, None, is_proven=True)
        exceeded, bound, least = ~within.keeps(plan), plan.loss, None
        if not exceeded.any():
            return plan
        costs_by_part = part_costs(self.estimates.checkpoint, self.choices, self.costs)
        room = np.maximum(within.others.high - costs_by_part.outside, 1)  # (6,)
        low, high = np.log(PRICES) + np.log(max(plan.loss, np.finfo(float).tiny))
        for _ in range(STEPS):
            middle = (low + high) / 2
            prices = np.where(exceeded, np.exp(middle) / room, 0.0)
            best = self._priced(prices, costs_by_part).best(None)
            assert best is not None  # the bytes allow one
            plan = self.plan(best, None, is_proven=False)
            bound = max(bound, best.loss - float(prices @ room))
            allowed = within.keeps(plan)
            if allowed.all():
                added = prices @ (within.counted(plan) - costs_by_part.outside)
                plan, high = replace(plan, score=float(added) - best.loss), middle
                least = plan if least is None or plan.loss < least.loss else least
            else:
                exceeded, low = exceeded | ~allowed, middle
        if least is None or bound >= below:
            return None
        return replace(least, gap=max(0.0, least.loss - bound))

    def _priced(self, prices: Floats, costs_by_part: PartCosts) -> Backbones:
        """Return the same sizes with losses that contain ``prices`` (6,) of their costs."""
        backbones, layers = copy(self), costs_by_part.layers
        more = [
            np.array([[layer.units[kind][count] @ prices for count in counts] for layer in layers])
            for kind, counts in enumerate(self.choices.units)
        ]
        more[-1] += np.array([[layer.rest @ prices] for layer in layers])
        backbones.losses = [losses + each for losses, each in zip(self.losses, more, strict=True)]
        return backbones


def _least(role: RoleEstimates, multiplier: float) -> Floats:
    """Return the minimum of loss + multiplier x bytes over types, (layers, sizes)."""
    return np.asarray((role.loss + multiplier * role.bytes).min(-1))


@dataclass(frozen=True, eq=False)
class Within:
    """The limits on ``bytes`` of weights and on other costs of a plan (``others``), counted by ``costs``."""

    bytes: int
    others: Budgets
    costs: CostModel

    @property
    def limited(self) -> tuple[str, ...]:
        limits = zip(self.others.names, self.others.high, strict=True)
        return tuple(f"max_{name}" for name, high in limits if high < UNBOUNDED)

    def counted(self, plan: Planned) -> Ints:
        """Return the costs of a plan, (6,), in the order of ``COSTS``."""
        return np.array([plan.costs[name] for name in COSTS])

    def keeps(self, plan: Planned) -> Bools:
        """Return which of the other costs of a plan keep their limits, (6,)."""
        return np.asarray(self.counted(plan) <= self.others.high)


def typed_plans(
    estimates: TypeEstimates, by: Criterion, request: SizeRequest, within: Within
) -> list[TypedPlan]:
    """Return the best plan for each width of the stream that allows one, the best of all first.

    Cuts have the losses of ``by``, if that is a table of losses; otherwise 0, and the request must fix the
    sizes. Plans with more than twice the least loss are omitted. Raises ``ValueError`` where there is none.
    """
    checkpoint, sides = estimates.checkpoint, list[Backbones]()
    for width in widths_in_file(checkpoint, by, request):
        possible = with_ranked_layers(checkpoint, choices(checkpoint, request, width), by)
        sides.append(Backbones(estimates, possible, by, within))
    plans = _uniform(sides, request, within) if request.is_uniform else _per_layer(sides, within)
    if not plans:
        budgets = ", ".join(f"--{name.replace('_', '-')}" for name in ("max_weight_bytes", *within.limited))
        raise ValueError(f"no types keep the budgets together: {budgets}")
    return sorted(plans, key=lambda plan: (plan.loss, plan.bytes))


def _per_layer(sides: Sequence[Backbones], within: Within) -> list[TypedPlan]:
    """Return the best plans with separate sizes in every layer, for each width."""
    plans: list[TypedPlan] = []
    for bound, place in sorted((each.bound(), place) for place, each in enumerate(sides)):
        top = min((plan.loss for plan in plans), default=np.inf)
        plan = sides[place].limited(within, NEAR * top) if bound < NEAR * top else None
        plans += [] if plan is None else [plan]
    return plans


def _uniform(sides: Sequence[Backbones], request: SizeRequest, within: Within) -> list[TypedPlan]:
    """Return the best plans with one size for all layers, for each width."""
    limited = bool(within.limited)
    fixed = limited or "layers" in request.keep
    plans: dict[int, TypedPlan] = {}
    rows = []
    for place, backbones in enumerate(sides):
        bounds = backbones.bounds(fixed=fixed)
        if limited:
            bounds = np.where(_allowed(backbones, within), bounds, np.inf)
        rows += [(float(bounds[at]), place, at) for at in zip(*np.nonzero(np.isfinite(bounds)), strict=True)]
    for bound, place, (depth, *at) in sorted(rows, key=lambda row: row[0]):
        top = min((plan.loss for plan in plans.values()), default=np.inf)
        below = min(plans[place].loss if place in plans else np.inf, NEAR * top)
        if bound >= below:
            continue
        backbones, sizes = sides[place], tuple(map(int, at))
        count = backbones.choices.depth[depth]
        kept = frozenset(np.moveaxis(backbones.order, 0, -1)[sizes][:count].tolist()) if fixed else None
        best = backbones.best(sizes, kept, below)
        if best is not None:
            is_proven = not fixed or backbones.choices.depth == (backbones.depth,)
            plans[place] = backbones.plan(best, sizes, is_proven=is_proven)
    return list(plans.values())


def _allowed(backbones: Backbones, within: Within) -> Bools:
    """Return a mask of the (depths, n1, n2, ...) that keep the other budgets."""
    chosen = backbones.choices
    costs_by_part = part_costs(backbones.estimates.checkpoint, chosen, within.costs)
    layers = np.array([layer.table(chosen.units) for layer in costs_by_part.layers])
    ordered = np.take_along_axis(layers, backbones.order[..., None], axis=0).cumsum(axis=0)
    return within.others.allow(ordered[np.array(chosen.depth) - 1] + costs_by_part.outside)


def _losses(parent: Dimensions, table: Criterion, chosen: Choices) -> tuple[list[Floats], Floats, float]:
    """Return the losses of cuts from a table of losses; by another criterion 0, with all layers kept.

    These are the losses of units (layers, n) by kind and number, without each layer (layers,), and of the
    width of the stream; 0 where nothing is cut.
    """
    depth = parent.depth
    if not isinstance(table, LossTable):
        return [np.zeros((depth, n)) for n in chosen.shape], np.full(depth, np.inf), 0.0
    units = [-scores for scores in unit_scores(parent, table, chosen)]
    stream = -(table.narrower(chosen.width) or 0.0) if chosen.width else 0.0
    return units, np.asarray(table.without_layer, np.float64), stream


def fewest_bytes(estimates: TypeEstimates, request: SizeRequest) -> tuple[int, str]:
    """Return the fewest bytes of any child that the request allows, and its sizes in words."""
    every = []
    for width in widths_in_file(estimates.checkpoint, FirstUnits(-1.0), request):
        chosen = choices(estimates.checkpoint, request, width)
        chosen = with_ranked_layers(estimates.checkpoint, chosen, FirstUnits(-1.0))
        roles, plain = estimates.in_layers(chosen, None), estimates.plain(chosen)
        sizes = [each.copy() for each in plain.units]  # (layers, n)
        layer = plain.layer.copy()
        for role in roles.values():
            least = _able(role).min(-1)
            if role.unit is None:
                layer[role.layers] += least[:, 0]
            else:
                sizes[role.unit][role.layers] += least
        at = [int(np.argmin(each.sum(0))) for each in sizes]
        layer += sum(each[:, place] for each, place in zip(sizes, at, strict=True))
        ends, depth = estimates.outside(width, measured=False), chosen.depth[0]
        optional = np.setdiff1d(np.arange(len(layer)), sorted(chosen.required_layers))
        few = np.sort(layer[optional])[: depth - len(chosen.required_layers)]
        whole = plain.ends + int(layer.sum() - layer[optional].sum() + few.sum())
        whole += sum(int(_able(role).min()) for role in ends.values())
        hidden = estimates.checkpoint.layout.hidden if width is None else width.hidden
        units = of_units(f"{counts[place]:,}" for counts, place in zip(chosen.units, at, strict=True))
        every.append((whole, f"{depth} layer{'s' * (depth > 1)}, hidden {hidden:,}, {units}"))
    return min(every, key=lambda one: one[0])


def _able(role: RoleEstimates) -> Ints:
    """Return the bytes (layers, sizes, types) of a role, huge where a type is impossible."""
    return np.where(np.isfinite(role.loss), role.bytes, np.iinfo(np.int64).max // 4)
