"""What the child should be, and the best cut that is so."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from zerolm.carving.importance.weights import Criterion, dimensions
from zerolm.carving.kept_units import Cut, LayerCut
from zerolm.carving.planning.lonas import accounts_in, choices_in, heuristic
from zerolm.carving.planning.part_costs import Accounts, Choices, accounts
from zerolm.carving.planning.plan import Planned, plan_per_layer, plan_uniform
from zerolm.checkpoints import Checkpoint
from zerolm.costs import COSTS, CostModel
from zerolm.solvers.problem import Budgets

SHAPES: Final = ("uniform", "per-layer")
RELATIVE: Final = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*[xX]\s*")
GRID: Final = 64
"""Steps of FFN widths that a plan within budgets tries, where nothing else is asked for."""


@dataclass(frozen=True)
class Wish:
    """What the child should be: widths outright (shares of the parent's), or within budgets.

    ``budgets`` maps ``max_`` of a cost to an integer. ``multiple_of`` holds for FFN widths,
    ``tensor_parallel`` must divide KV groups and FFN widths; ``least_groups`` and ``least_ffn`` are floors.
    ``space`` names one of LoNAS, whose sizes and whose costs then count.
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
    space: str | None = None


def choices(checkpoint: Checkpoint, wish: Wish) -> Choices:
    """The sizes that a layer may have; ``ValueError`` where the wish leaves none."""
    least = min(wish.tensor_parallel, wish.least_groups, wish.least_ffn, wish.multiple_of or 1)
    if least < 1:
        raise ValueError(f"floors, divisors and steps must be at least 1, not {least}")
    if wish.space is not None:
        if wish != Wish("per-layer", budgets=wish.budgets, space=wish.space):
            raise ValueError(
                "a space says the sizes, layer by layer: beside it go budgets, or --plan heuristic"
            )
        return choices_in(wish.space, checkpoint)
    parent, cut = dimensions(checkpoint), checkpoint.family.cut
    step = wish.multiple_of or max(1, parent.ffn // GRID)
    groups = [count for count in range(1, parent.kv_heads + 1) if _group_count_goes(count, checkpoint, wish)]
    every = 1 if wish.keep_ffn is not None and wish.multiple_of is None else step
    ffn = [
        width for width in sorted({*range(every, parent.ffn + 1, every), parent.ffn}) if _goes(width, wish)
    ]
    layers = list(range(1, parent.depth + 1)) if cut.layers else [parent.depth]
    if wish.keep_heads is None and not (wish.budgets and cut.heads):  # what is not named stays whole
        groups = [count for count in groups if count == parent.kv_heads]
    if wish.keep_ffn is None and not (wish.budgets and cut.ffn):
        ffn = [width for width in ffn if width == parent.ffn]
    if not groups or not ffn:
        raise ValueError(
            f"no size is left: {parent.kv_heads} KV groups and {parent.ffn} neurons in steps of {step}, "
            f"divisible by {wish.tensor_parallel}, at least {wish.least_groups} and {wish.least_ffn}"
        )
    if wish.keep_heads is not None:
        groups = [_nearest("heads", wish.keep_heads, parent.kv_heads, groups, cut.heads, cut.note)]
    if wish.keep_ffn is not None:
        ffn = [_nearest("ffn", wish.keep_ffn, parent.ffn, ffn, cut.ffn, cut.note)]
    if wish.keep_layers is not None:
        layers = [_nearest("layers", wish.keep_layers, parent.depth, layers, cut.layers, cut.note)]
    elif not wish.budgets:
        layers = [parent.depth]
    return Choices(tuple(groups), tuple(ffn), tuple(layers))


def _goes(width: int, wish: Wish) -> bool:
    """Whether an FFN of this width is wished for."""
    divides = width % wish.tensor_parallel == 0 and width % (wish.multiple_of or 1) == 0
    return divides and width >= wish.least_ffn


def _group_count_goes(count: int, checkpoint: Checkpoint, wish: Wish) -> bool:
    """Whether so many KV groups are wished for, and uniform layers with them can be written."""
    parent, cut = dimensions(checkpoint), checkpoint.family.cut
    biased = any(checkpoint.config.get(flag) for flag in checkpoint.family.config.flags)
    divisible = parent.hidden % (count * parent.heads_per_group) == 0 or count == parent.kv_heads
    needed = cut.indivisible == "refused" or (cut.indivisible == "mistral" and biased)
    written = divisible or not needed or wish.shape == "per-layer"
    return written and count >= wish.least_groups and count % wish.tensor_parallel == 0


def _nearest(
    what: str, share: float, whole: int, possible: Sequence[int], can_be_cut: bool, note: str
) -> int:
    if not 0.0 < share <= 1.0:
        raise ValueError(f"the share of {what} to keep must lie in (0, 1], not {share:g}")
    if share < 1.0 and not can_be_cut:
        raise ValueError(f"{what} cannot be cut here: {note}")
    return min(possible, key=lambda size: (abs(size - share * whole), -size))


def plan_of(checkpoint: Checkpoint, criterion: Criterion, wish: Wish, costs: CostModel) -> Planned:
    """The best cut that the wish allows; ``ValueError`` where there is none, naming the nearest."""
    if wish.shape not in SHAPES:
        raise ValueError(f"shape {wish.shape!r} is not known; there are {', '.join(SHAPES)}")
    if not wish.budgets and wish.keep_ffn is None and wish.keep_heads is None and wish.keep_layers is None:
        raise ValueError(
            "nothing says how small: give a budget such as --max-params 0.8x, or --keep-ffn 0.75"
        )
    if wish.shape == "per-layer" and wish.keep_layers is not None:
        raise ValueError("a number of layers goes with --shape uniform; per layer, budgets say which go")
    parent, sizes = dimensions(checkpoint), choices(checkpoint, wish)
    if criterion.without(0) is None:
        if sizes.depth[-1] < parent.depth:
            raise ValueError(
                "weights do not tell which layers may go: give --text FILE, or --text random without one"
            )
        sizes = replace(sizes, depth=(parent.depth,))
    account = account_of(checkpoint, sizes, costs, wish.space)
    budgets = Budgets.of(dict(wish.budgets or {}))
    if wish.shape == "uniform":
        return plan_uniform(parent, criterion, sizes, account, budgets)
    return plan_per_layer(parent, criterion, sizes, account, budgets)


def heuristic_of(checkpoint: Checkpoint, criterion: Criterion, wish: Wish) -> Cut:
    """The heuristic subnet of the wish's space, with the units that the criterion chooses."""
    if wish.space is None or wish.budgets:
        raise ValueError("the heuristic plan is that of a --space of LoNAS, without budgets")
    sizes = heuristic(choices(checkpoint, wish))
    layers = (
        LayerCut(layer, criterion.choose(layer, "groups", groups), criterion.choose(layer, "ffn", ffn))
        for layer, (groups, ffn) in enumerate(sizes)
    )
    return Cut(dimensions(checkpoint), tuple(layers))


def account_of(checkpoint: Checkpoint, sizes: Choices, costs: CostModel, space: str | None) -> Accounts:
    """What the parts of a checkpoint cost, as a LoNAS ``space`` counts where there is one."""
    return accounts_in(space, checkpoint, sizes, costs) if space else accounts(checkpoint, sizes, costs)


def costs_of(
    checkpoint: Checkpoint, costs: CostModel, cut: Cut | None = None, space: str | None = None
) -> dict[str, int]:
    """The costs by name of a cut, without one those of the parent."""
    cut = cut or Cut.whole(dimensions(checkpoint))
    sizes = [(len(layer.groups), len(layer.ffn)) for layer in cut.layers]
    groups, ffn = (tuple(sorted(set(kind))) for kind in zip(*sizes, strict=True))
    account = account_of(checkpoint, Choices(groups, ffn, (len(sizes),)), costs, space)
    return dict(zip(COSTS, account.of(sizes).tolist(), strict=True))


def budgets_of(asked: Mapping[str, int | str], parent: Mapping[str, int]) -> dict[str, int]:
    """Budgets as integers: ``0.8x`` is a share of the parent's cost of that name."""
    found = {}
    for name, value in asked.items():
        if isinstance(value, int):
            found[name] = value
            continue
        share, cost = RELATIVE.fullmatch(str(value)), name.partition("_")[2]
        if share is None or cost not in parent:
            raise ValueError(
                f"{name} {value!r} is neither an integer nor a share of the parent's such as '0.8x'"
            )
        found[name] = int(Decimal(share[1]) * parent[cost])
    return found
