"""From a parent and a wish to a plan, a child on the disk, and the recipe that rebuilds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from zerolm.carving.criteria import Criterion, dimensions
from zerolm.carving.cuts import Cut, Dimensions, LayerCut
from zerolm.carving.plan import Accounts, Choices, Planned, accounts, plan_per_layer, plan_uniform
from zerolm.checkpoints import Checkpoint
from zerolm.costs import COSTS, CostModel
from zerolm.solvers.problem import Budgets

SHAPES: Final = ("uniform", "per-layer")
GRID: Final = 64
"""Steps of FFN widths that a plan within budgets tries, where nothing else is asked for."""


@dataclass(frozen=True)
class Wish:
    """What the child should be: widths outright (shares of the parent's), or within budgets.

    ``budgets`` maps ``max_`` of a cost to an integer. ``multiple_of`` holds for FFN widths,
    ``tensor_parallel`` must divide KV groups and FFN widths; ``least_groups`` and ``least_ffn`` are floors.
    """

    shape: str = "uniform"
    keep_ffn: float | None = None
    keep_heads: float | None = None
    keep_layers: float | None = None
    budgets: Mapping[str, int] | None = None
    multiple_of: int | None = None
    tensor_parallel: int = 1
    least_groups: int = 1
    least_ffn: int = 1


def choices(checkpoint: Checkpoint, wish: Wish) -> Choices:
    """The sizes that a layer may have; ``ValueError`` where the wish leaves none."""
    parent, cut = dimensions(checkpoint), checkpoint.family.cut
    step = wish.multiple_of or max(1, parent.ffn // GRID)
    groups = [
        count
        for count in range(max(1, wish.least_groups), parent.kv_heads + 1)
        if count % wish.tensor_parallel == 0 and (cut.heads or count == parent.kv_heads)
    ]
    ffn = [
        width
        for width in {*range(step, parent.ffn + 1, step), parent.ffn}
        if width >= wish.least_ffn and width % wish.tensor_parallel == 0 and (cut.ffn or width == parent.ffn)
    ]
    layers = list(range(1, parent.depth + 1)) if cut.layers else [parent.depth]
    if wish.keep_heads is not None:
        groups = [_nearest("heads", wish.keep_heads, parent.kv_heads, groups, cut.heads, cut.note)]
    if wish.keep_ffn is not None:
        ffn = list(range(step, parent.ffn + 1, step)) if wish.multiple_of else list(range(1, parent.ffn + 1))
        ffn = [width for width in ffn if width % wish.tensor_parallel == 0]
        ffn = [_nearest("ffn", wish.keep_ffn, parent.ffn, ffn, cut.ffn, cut.note)]
    if wish.keep_layers is not None:
        layers = [_nearest("layers", wish.keep_layers, parent.depth, layers, cut.layers, cut.note)]
    elif not wish.budgets:
        layers = [parent.depth]
    if not wish.budgets:  # what is not named stays whole
        groups = groups if wish.keep_heads is not None else [parent.kv_heads]
        ffn = ffn if wish.keep_ffn is not None else [parent.ffn]
    if not groups or not ffn:
        raise ValueError(
            f"no size is left: {parent.kv_heads} KV groups and {parent.ffn} neurons in steps of {step}, "
            f"divisible by {wish.tensor_parallel}, at least {wish.least_groups} and {wish.least_ffn}"
        )
    return Choices(tuple(groups), tuple(sorted(ffn)), tuple(layers))


def _nearest(
    what: str, share: float, whole: int, possible: Sequence[int], can_be_cut: bool, note: str
) -> int:
    if not 0.0 < share <= 1.0:
        raise ValueError(f"the share of {what} to keep must lie in (0, 1], not {share:g}")
    if share < 1.0 and not can_be_cut:
        raise ValueError(f"{what} cannot be cut here: {note}")
    if not possible:
        raise ValueError(f"none of {whole} {what} is possible")
    return min(possible, key=lambda size: (abs(size - share * whole), -size))


def plan(checkpoint: Checkpoint, criterion: Criterion, wish: Wish, costs: CostModel) -> Planned:
    """The best cut that the wish allows; ``ValueError`` where there is none, naming the nearest."""
    if wish.shape not in SHAPES:
        raise ValueError(f"shape {wish.shape!r} is not known; there are {', '.join(SHAPES)}")
    if not wish.budgets and wish.keep_ffn is None and wish.keep_heads is None and wish.keep_layers is None:
        raise ValueError(
            "nothing says how small: give a budget such as --max-params 0.8x, or --keep-ffn 0.75"
        )
    parent, sizes = dimensions(checkpoint), choices(checkpoint, wish)
    account = accounts(checkpoint, sizes, costs)
    budgets = Budgets.of(dict(wish.budgets or {}))
    if wish.shape == "uniform":
        return plan_uniform(parent, criterion, sizes, account, budgets)
    return plan_per_layer(parent, criterion, sizes, account, budgets)


def costs_of(checkpoint: Checkpoint, costs: CostModel) -> dict[str, int]:
    """The costs of the parent by name."""
    parent = dimensions(checkpoint)
    whole = Choices((parent.kv_heads,), (parent.ffn,), (parent.depth,))
    account: Accounts = accounts(checkpoint, whole, costs)
    total = account.of([(parent.kv_heads, parent.ffn)] * parent.depth)
    return dict(zip(COSTS, total.tolist(), strict=True))


def widths(cut: Cut) -> list[dict[str, int]]:
    """The sizes of each kept layer."""
    per_group = cut.parent.heads_per_group
    return [
        {
            "layer": layer.layer,
            "heads": len(layer.groups) * per_group,
            "kv_heads": len(layer.groups),
            "ffn": len(layer.ffn),
        }
        for layer in cut.layers
    ]


def to_recipe(cut: Cut) -> list[dict[str, Any]]:
    """A cut as plain JSON: the kept units of each kept layer."""
    return [
        {"layer": layer.layer, "groups": layer.groups.tolist(), "ffn": layer.ffn.tolist()}
        for layer in cut.layers
    ]


def from_recipe(parent: Dimensions, layers: Any) -> Cut:
    """The cut of a recipe; ``ValueError`` where it does not fit the parent."""
    if not isinstance(layers, list) or not layers:
        raise ValueError("a recipe lists the kept layers")
    cuts: list[LayerCut] = []
    for entry in layers:
        if not isinstance(entry, dict) or set(entry) != {"layer", "groups", "ffn"}:
            raise ValueError("each layer of a recipe has layer, groups and ffn")
        layer = entry["layer"]
        if type(layer) is not int or not 0 <= layer < parent.depth or (cuts and layer <= cuts[-1].layer):
            raise ValueError(
                f"layer {layer!r} of the recipe is out of order, or beyond {parent.depth} layers"
            )
        kept = []
        for kind, whole in (("groups", parent.kv_heads), ("ffn", parent.ffn)):
            units = entry[kind]
            sound = isinstance(units, list) and units and all(type(unit) is int for unit in units)
            if not sound or units != sorted(set(units)) or units[0] < 0 or units[-1] >= whole:
                raise ValueError(f"{kind} of layer {layer} must ascend within 0 to {whole - 1}")
            kept.append(np.array(units, np.int64))
        cuts.append(LayerCut(layer, *kept))
    return Cut(parent, tuple(cuts))
