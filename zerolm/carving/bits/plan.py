"""Joint plans of cuts and quantisation types within a budget of bytes, exact for additive losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from zerolm.architecture import Bools, Floats, Ints
from zerolm.carving.bits.estimates import RoleEstimates, TypeEstimates
from zerolm.carving.bits.options import All, Best, Either, Options, Tree, least_bytes, least_loss
from zerolm.carving.bits.row_blocks import ATTENTION, FFN, roles_of, widths_in_file
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.gguf.names import ADDED, held_in_file
from zerolm.checkpoints.weight_types import BY_NAME, WeightType
from zerolm.costs import CostModel
from zerolm.passes.matrix_moments import EMBEDDING, Place, outside_layers
from zerolm.planning.part_costs import Choices, part_costs
from zerolm.planning.plan import sizes_of
from zerolm.planning.sensitivity import LossTable
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.sizes import choices
from zerolm.solvers.problem import UNBOUNDED, Budgets
from zerolm.units.importance.criterion import Criterion, FirstUnits
from zerolm.units.kept_units import Cut, Dimensions, dimensions
from zerolm.units.stream.narrowing import Width

MULTIPLIERS: Final = np.geomspace(1e-16, 1e-2, 85)
"""Multipliers of a byte for which the losses of all sizes are bounded."""
Pair = tuple[int, int]
"""The places among the choices of a number of KV groups and of neurons."""
NEAR: Final = 2.0
"""Plans for a width with a loss above this multiple of the least one are not searched for."""


@dataclass(frozen=True, eq=False)
class TypedPlan:
    """A cut, the ``types`` of its matrices by the parent's layer and role, its bytes and its predicted loss.

    ``is_proven``: no other plan of its shape has a smaller loss.
    """

    cut: Cut
    width: Width | None
    types: dict[Place, str]
    bytes: int
    loss: float
    is_proven: bool

    @property
    def is_whole(self) -> bool:
        """Whether nothing is cut, including the stream."""
        return self.cut.is_whole and self.width is None

    @property
    def score(self) -> float:
        """Minus the predicted loss, for the ranking of plans."""
        return -self.loss

    @property
    def sizes(self) -> tuple[object, ...]:
        """The sizes that it keeps, regardless of the types."""
        return sizes_of(self.cut, self.width)


@dataclass(frozen=True, eq=False)
class Losses:
    """Losses of cuts, by sizes: ``groups`` (layers, g), ``ffn`` (layers, f), ``without_layer`` (layers,).

    ``stream`` is the loss of the width. All are 0 where nothing is cut.
    """

    groups: Floats
    ffn: Floats
    without_layer: Floats
    stream: float


class Backbones:
    """The possible sizes of a child for one width of the stream, with their bytes and losses."""

    def __init__(self, estimates: TypeEstimates, choices: Choices, by: Criterion, budget: int) -> None:
        self.estimates, self.choices, self.by = estimates, choices, by
        self.losses = _losses(estimates.parent, by, choices)
        width, parent = choices.width, estimates.parent
        groups, ffn = np.array(choices.groups), np.array(choices.ffn)
        self.roles = {role: estimates.of_layers(width, role, groups, by) for role in estimates.attention}
        self.roles |= {role: estimates.of_layers(width, role, ffn, by) for role in estimates.ffn}
        self.ends = estimates.outside(width)
        self.plain = PlainBytes.of(estimates.checkpoint, parent, choices)
        self.budget, self.depth = budget, parent.depth

    @property
    def may_remove_layers(self) -> bool:
        """Whether layers may be removed."""
        return len(self.choices.depth) > 1

    def bounds(self, *, fixed: bool) -> Floats:
        """Return lower bounds of the loss for each pair of sizes, equal in all layers, (depths, groups, ffn).

        With ``fixed`` depths the layers with the smallest loss by the cut alone are removed; otherwise any,
        and there is one depth.
        """
        best = np.array(-np.inf)
        for multiplier in MULTIPLIERS:
            layers = self._pairs(multiplier)  # (layers, groups, ffn)
            if fixed:
                total = self._at_depths(layers)
            else:
                least = (
                    np.minimum(layers, self.losses.without_layer[:, None, None])
                    if self.may_remove_layers
                    else layers
                )
                total = least.sum(0)[None]
            best = np.maximum(best, total + self._ends_at(multiplier) - multiplier * self.budget)
        return best + self.losses.stream

    def _at_depths(self, layers: Floats) -> Floats:
        """Return the sums over kept layers plus the losses of removed ones, (depths, groups, ffn)."""
        order, depths = self.order, np.array(self.choices.depth)
        kept = np.take_along_axis(layers, order, axis=0).cumsum(axis=0)[depths - 1]
        removed = self.losses.without_layer[order]
        of_removed = np.append(removed[::-1].cumsum(axis=0)[::-1], np.zeros_like(removed[:1]), axis=0)
        return np.asarray(kept + of_removed[depths])

    @cached_property
    def order(self) -> Ints:
        """The layers by the loss without them, the largest first, for each pair of sizes."""
        cut = self.losses.groups[:, :, None] + self.losses.ffn[:, None, :]
        return np.argsort(cut - self.losses.without_layer[:, None, None], axis=0, kind="stable")

    def bound(self) -> float:
        """Return a lower bound of the loss with separate sizes in every layer."""
        return max(self._bound_at(multiplier) for multiplier in MULTIPLIERS) + self.losses.stream

    def _bound_at(self, multiplier: float) -> float:
        layers = self._pairs(multiplier).min(axis=(1, 2))
        if self.may_remove_layers:
            layers = np.minimum(layers, self.losses.without_layer)
        return float(layers.sum() + self._ends_at(multiplier) - multiplier * self.budget)

    def _pairs(self, multiplier: float) -> Floats:
        """Return the minimum of loss + multiplier x bytes of each layer for each pair of sizes."""
        attention = (
            sum(_least(self.roles[role], multiplier) for role in self.estimates.attention)
            + self.losses.groups
        )
        ffn = sum(_least(self.roles[role], multiplier) for role in self.estimates.ffn) + self.losses.ffn
        attention += multiplier * self.plain.groups
        ffn += multiplier * (self.plain.ffn + self.plain.layer[:, None])
        return np.asarray(attention[:, :, None] + ffn[:, None, :])

    def _ends_at(self, multiplier: float) -> float:
        least = (float(_least(role, multiplier)[0, 0]) for role in self.ends.values())
        return sum(least) + multiplier * self.plain.ends

    def tree(
        self, pair: Pair | None, kept: frozenset[int] | None = None, required_layer: int | None = None
    ) -> Tree:
        """Return the tree of all choices: of types for one pair of sizes (their places), or also of sizes.

        ``kept`` are the layers that are kept. Without it any layer may be removed, if depths are free, except
        for the layer ``required_layer``.
        """
        layers = [self._layer(layer, pair, kept, required_layer) for layer in range(self.depth)]
        ends = [_table((None, role), one, 0, 0) for role, one in self.ends.items()]
        plain = Options("ends", np.array([self.plain.ends]), np.array([self.losses.stream]))
        return All((*layers, *ends, plain))

    def _layer(
        self, layer: int, pair: Pair | None, kept: frozenset[int] | None, required_layer: int | None
    ) -> Tree:
        pairs = pair if pair is not None else (None, None)
        sides = (
            ("groups", self.estimates.attention, self.losses.groups),
            ("ffn", self.estimates.ffn, self.losses.ffn),
        )
        parts = [
            self._side(layer, kind, roles, losses, place)
            for (kind, roles, losses), place in zip(sides, pairs, strict=True)
        ]
        plain = Options((layer, "plain"), self.plain.layer[layer : layer + 1], np.zeros(1))
        with_layer, name = All((*parts, plain)), (layer, "kept")
        without_layer = Options(
            (layer, "removed"), np.zeros(1, np.int64), self.losses.without_layer[layer : layer + 1]
        )
        if kept is None:
            return Either(
                name,
                (with_layer, without_layer)
                if self.may_remove_layers and layer != required_layer
                else (with_layer,),
            )
        return Either(name, (with_layer,)) if layer in kept else without_layer

    def _side(self, layer: int, kind: str, roles: Sequence[str], losses: Floats, place: int | None) -> Tree:
        places = range(losses.shape[1]) if place is None else (place,)
        sizes: list[Tree] = []
        for at in places:
            tables = [_table((layer, role), self.roles[role], layer, at) for role in roles]
            plain = getattr(self.plain, kind)[at : at + 1]
            cut = Options((layer, kind, "cut"), plain, losses[layer, at : at + 1])
            sizes.append(All((*tables, cut)))
        return Either((layer, kind), tuple(sizes))

    def plan(self, best: Best, pair: Pair | None, *, is_proven: bool) -> TypedPlan:
        """Return the plan of a choice."""
        picks, choices = best.picks, self.choices
        kept = [layer for layer in range(self.depth) if picks.get((layer, "kept")) == 0]
        sizes: dict[int, tuple[int, int]] = {}
        types: dict[Place, str] = {}
        for layer in kept:
            places = pair or (picks[layer, "groups"], picks[layer, "ffn"])
            sizes[layer] = choices.groups[places[0]], choices.ffn[places[1]]
            types |= {(layer, role): one.types[picks[layer, role]].name for role, one in self.roles.items()}
        types |= {(None, role): one.types[picks[None, role]].name for role, one in self.ends.items()}
        cut = Cut.of(self.estimates.parent, kept, sizes.__getitem__, self.by.choose)
        return TypedPlan(cut, choices.width, types, best.bytes, best.loss, is_proven)

    def best(
        self, pair: Pair | None, kept: frozenset[int] | None = None, below: float = np.inf
    ) -> Best | None:
        """Return the choice of least loss ``below`` a loss, with one pair of sizes or sizes for each layer.

        It keeps at least one layer.
        """
        best = least_loss(self.tree(pair, kept), self.budget, below)
        if best is None or any(best.picks.get((layer, "kept")) == 0 for layer in range(self.depth)):
            return best
        alternatives = (
            least_loss(self.tree(pair, kept, layer), self.budget, below) for layer in range(self.depth)
        )
        return min(filter(None, alternatives), key=lambda choice: (choice.loss, choice.bytes), default=None)


def _least(role: RoleEstimates, multiplier: float) -> Floats:
    """Return the minimum of loss + multiplier x bytes over types, (layers, sizes)."""
    return np.asarray((role.loss + multiplier * role.bytes).min(-1))


def _table(name: Place, role: RoleEstimates, layer: int, size: int) -> Options:
    return Options(name, role.bytes[size], role.loss[layer, size])


@dataclass(frozen=True, eq=False)
class PlainBytes:
    """The bytes of float32 tensors, which have no type: norms, biases, tensors that are added to embeddings.

    By sizes of ``groups`` (g,) and ``ffn`` (f,), of the rest of each ``layer`` (layers,), and at the
    ``ends``.
    """

    groups: Ints
    ffn: Ints
    layer: Ints
    ends: int

    @classmethod
    def of(cls, checkpoint: Checkpoint, parent: Dimensions, choices: Choices) -> PlainBytes:
        """Return the float32 bytes of a checkpoint for each of the choices."""
        layout, width = checkpoint.layout, choices.width
        hidden = layout.hidden if width is None else width.hidden
        counts = {"groups": choices.groups, "ffn": choices.ffn}
        sizes = {kind: np.zeros(len(each), np.int64) for kind, each in counts.items()}
        totals: dict[int | None, int] = dict.fromkeys((None, *range(parent.depth)), 0)
        held = held_in_file(checkpoint.family)
        for layer in totals:
            for name in layout.layer(layer).values():
                role, shape = layout.slots[name].role, checkpoint.tensors[name].shape
                if not held(role) or not layout.slots[name].axes:  # a number is a key of the file
                    continue
                label, *more = layout.slots[name].axes
                parts = list(parent.parts(label))
                if more:
                    totals[layer] += 4 * math.prod(shape) if role in ADDED else 0
                    continue
                if not parts:
                    totals[layer] += 4 * (hidden if label == "hidden" else shape[0])
                for part in parts if layer == 0 else ():
                    sizes[part.kind] += 4 * part.unit * np.array(counts[part.kind])
        layers = np.array([totals[layer] for layer in range(parent.depth)])
        return cls(sizes["groups"], sizes["ffn"], layers, totals[None])


@dataclass(frozen=True, eq=False)
class Within:
    """The limits on ``bytes`` of weights and on other costs of a plan (``others``), counted by ``costs``."""

    bytes: int
    others: Budgets
    costs: CostModel

    @property
    def limited(self) -> tuple[str, ...]:
        """Return the names of the other budgets that are set."""
        names = self.others.names
        return tuple(
            f"max_{name}" for name, high in zip(names, self.others.high, strict=True) if high < UNBOUNDED
        )


def typed_plans(
    estimates: TypeEstimates, by: Criterion, request: SizeRequest, within: Within
) -> list[TypedPlan]:
    """Return the best plan for each width of the stream that allows one, the best of all first.

    Cuts have the losses of ``by``, if that is a table of losses; otherwise 0, and the request must fix the
    sizes. Plans with more than twice the least loss are omitted. Raises ``ValueError``, with the fewest
    bytes, where there is no plan.
    """
    checkpoint, parent = estimates.checkpoint, estimates.parent
    sides = []
    for width in widths_in_file(checkpoint, by, request):
        possible = choices(checkpoint, request, width)
        if by.without(0) is None:
            possible = replace(possible, depth=(parent.depth,))
        sides.append(Backbones(estimates, possible, by, within.bytes))
    limited = bool(within.limited)
    if not request.is_uniform:
        if limited:
            raise ValueError(
                f"per-layer sizes and types are planned within max_weight_bytes alone: leave "
                f"{within.limited[0]} out, or give --shape uniform"
            )
        plans = _per_layer(sides)
    else:
        plans = _uniform(sides, request, within, limited=limited)
    if not plans:
        least = min(smallest(backbones) for backbones in sides)
        if least <= within.bytes:
            others = ", ".join(f"--{name.replace('_', '-')}" for name in within.limited)
            raise ValueError(
                f"no types keep the budgets together: of the plans of {least:,} to {within.bytes:,} bytes of "
                f"weights, {others} allows none"
            )
        raise ValueError(
            f"no types keep the budgets: --max-weight-bytes {within.bytes:,} would have to be at least "
            f"{least:,}"
        )
    return sorted(plans, key=lambda plan: (plan.loss, plan.bytes))


def _per_layer(sides: Sequence[Backbones]) -> list[TypedPlan]:
    plans: list[TypedPlan] = []
    for bound, place in sorted((each.bound(), place) for place, each in enumerate(sides)):
        top = min((plan.loss for plan in plans), default=np.inf)
        if bound < NEAR * top:
            best = sides[place].best(None, below=NEAR * top)
            if best is not None:
                plans.append(sides[place].plan(best, None, is_proven=True))
    return plans


def _uniform(
    sides: Sequence[Backbones], request: SizeRequest, within: Within, *, limited: bool
) -> list[TypedPlan]:
    """Return the best plans with one size for all layers, for each width."""
    fixed = limited or "layers" in request.keep
    plans: dict[int, TypedPlan] = {}
    rows = []
    for place, backbones in enumerate(sides):
        bounds = backbones.bounds(fixed=fixed)
        if limited:
            bounds = np.where(_allowed(backbones, within), bounds, np.inf)
        rows += [(float(bounds[at]), place, at) for at in zip(*np.nonzero(np.isfinite(bounds)), strict=True)]
    for bound, place, (depth, *pair) in sorted(rows, key=lambda row: row[0]):
        top = min((plan.loss for plan in plans.values()), default=np.inf)
        below = min(plans[place].loss if place in plans else np.inf, NEAR * top)
        if bound >= below:
            continue
        backbones, sizes = sides[place], (int(pair[0]), int(pair[1]))
        count = backbones.choices.depth[depth]
        kept = frozenset(backbones.order[:count, *sizes].tolist()) if fixed else None
        best = backbones.best(sizes, kept, below)
        if best is not None:
            is_proven = not fixed or backbones.choices.depth == (backbones.depth,)
            plans[place] = backbones.plan(best, sizes, is_proven=is_proven)
    return list(plans.values())


def _allowed(backbones: Backbones, within: Within) -> Bools:
    """Return a mask of the (depths, groups, ffn) that keep the other budgets."""
    chosen = backbones.choices
    costs_by_part = part_costs(backbones.estimates.checkpoint, chosen, within.costs)
    layers = np.array(
        [[[layer.rest + layer.groups[g] + layer.ffn[f] for f in chosen.ffn] for g in chosen.groups]
         for layer in costs_by_part.layers]
    )  # fmt: skip
    ordered = np.take_along_axis(layers, backbones.order[..., None], axis=0).cumsum(axis=0)
    return within.others.allow(ordered[np.array(chosen.depth) - 1] + costs_by_part.outside)


def _losses(parent: Dimensions, table: Criterion, chosen: Choices) -> Losses:
    """Return the losses of cuts from a table of losses; by another criterion 0, with all layers kept."""
    depth = parent.depth
    if not isinstance(table, LossTable):
        shapes = ((depth, len(chosen.groups)), (depth, len(chosen.ffn)))
        return Losses(np.zeros(shapes[0]), np.zeros(shapes[1]), np.full(depth, np.inf), 0.0)
    groups, ffn = (
        np.array([[-table.score(layer, kind, size) for size in sizes] for layer in range(depth)])
        for kind, sizes in (("groups", chosen.groups), ("ffn", chosen.ffn))
    )
    stream = -(table.narrower(chosen.width) or 0.0) if chosen.width else 0.0
    return Losses(groups, ffn, np.asarray(table.without_layer, np.float64), stream)


def smallest(backbones: Backbones) -> int:
    """Return the fewest bytes of a child for this width."""
    pairs = ((g, f) for g in range(len(backbones.choices.groups)) for f in range(len(backbones.choices.ffn)))
    return min(least_bytes(backbones.tree(pair, required_layer=0)) for pair in pairs)


def plain_bytes(cut: Cut, checkpoint: Checkpoint) -> int:
    """Return the bytes of the float32 tensors in a child whose matrices have types."""
    groups = tuple(sorted({len(layer.groups) for layer in cut.layers}))
    ffn = tuple(sorted({len(layer.ffn) for layer in cut.layers}))
    width = cut.narrowing.width if cut.narrowing else None
    plain = PlainBytes.of(checkpoint, cut.parent, Choices(groups, ffn, (len(cut.layers),), width=width))
    of_layers = (
        plain.groups[groups.index(len(layer.groups))]
        + plain.ffn[ffn.index(len(layer.ffn))]
        + plain.layer[layer.layer]
        for layer in cut.layers
    )
    return int(sum(of_layers)) + plain.ends


@dataclass(frozen=True)
class Fewest:
    """The fewest ``bytes`` that a child's weights can have, with its layers, sizes and ``types``."""

    bytes: int
    layers: int
    hidden: int
    groups: int
    ffn: int
    types: frozenset[str]

    def words(self) -> str:
        """Return the sizes and types in words."""
        names = sorted(self.types, key=lambda name: (BY_NAME[name].bits, name))
        return (
            f"{self.layers} layer{'s' * (self.layers > 1)}, hidden {self.hidden:,}, "
            f"KV groups {self.groups:,}, ffn {self.ffn:,}, in {' and '.join(names)}"
        )


def fewest_bytes(checkpoint: Checkpoint, types: Sequence[WeightType], request: SizeRequest) -> Fewest:
    """Return the fewest bytes of any child that the request allows."""
    parent, any_loss = dimensions(checkpoint), FirstUnits(-1.0)
    estimates = TypeEstimates(checkpoint, tuple(types), None, ())
    every = []
    for width in widths_in_file(checkpoint, any_loss, request):
        chosen = choices(checkpoint, request, width)
        plain, sizes, layer, kinds = PlainBytes.of(checkpoint, parent, chosen), {}, 0, set[str]()
        for kind, roles in (("groups", ATTENTION), ("ffn", FFN)):
            counts = np.array(getattr(chosen, kind))
            of_roles = [estimates.fewest(width, role, counts) for role in roles_of(checkpoint, roles)]
            total = sum(one.bytes for one in of_roles) + getattr(plain, kind)
            at = int(np.argmin(total))
            sizes[kind], layer = int(counts[at]), layer + int(total[at])
            kinds |= {one.types[at] for one in of_roles}
        tied = checkpoint.layout.tied if width is None else width.tied
        outside = EMBEDDING if tied else outside_layers(predicts=checkpoint.family.task == "next")
        ends = [estimates.fewest(width, role, np.array([1])) for role in outside]
        kinds |= {one.types[0] for one in ends}
        depth = chosen.depth[0]
        norms = int(np.sort(plain.layer)[:depth].sum())
        total = depth * layer + norms + sum(int(one.bytes[0]) for one in ends) + plain.ends
        hidden = parent.hidden if width is None else width.hidden
        every.append(Fewest(total, depth, hidden, sizes["groups"], sizes["ffn"], frozenset(kinds)))
    return min(every, key=lambda one: one.bytes)
