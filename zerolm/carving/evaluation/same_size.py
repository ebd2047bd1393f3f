"""Networks of the size of a child, made of its parent, that stand beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Final

import numpy as np
from transformers import PreTrainedModel

from zerolm.carving.evaluation.by_layers import Choice
from zerolm.carving.evaluation.masked_mixtures import (
    FREQUENCY,
    choices_of,
    fewer_experts,
    has_narrower_experts,
    lacks_experts_alone,
    masked_mixtures,
    uncounted,
    without_experts,
)
from zerolm.carving.evaluation.quantised_parent import quantised_parent, stored_bytes
from zerolm.carving.experts.fewer_experts import FewerExperts
from zerolm.carving.importance.criteria import criterion_of
from zerolm.carving.importance.criterion import Criterion
from zerolm.carving.kept_units import Cut
from zerolm.carving.planning.part_costs import PARAMS, Choices, part_costs
from zerolm.carving.planning.sizes import costs_of
from zerolm.carving.pruning import apply_in_memory
from zerolm.carving.width.weights_basis import weights_channels
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.costs import CostModel
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens

DRAW_SEEDS: Final = (0, 1, 2)
QUANTISED_PARENT: Final = "quantised parent"
COMPARED: Final = (
    "random, uniform: same size and layers as the child, no repair, no rotation "
    f"(random: {len(DRAW_SEEDS)} draws, mean)"
)
MASKED: Final = "random, frequency: the parent with as many experts as the child, no repair"
FAVOURED: Final = "frequency: those that the judged text is sent to most, which favours it"
NOT_COMPARED: Final = (
    "no random and uniform carvings beside it: the child has no recipe of this parent, and its configuration "
    "does not tell what it keeps of each layer"
)
NARROWER: Final = "no other carvings beside it: neurons of its experts left, and none are drawn"


def params_of(checkpoint: Checkpoint, cut: Cut | None) -> int:
    """Return the parameters of a checkpoint, or of a cut of it."""
    return costs_of(checkpoint, CostModel(), cut)["params"]


@dataclass(frozen=True)
class SameSize:
    """Networks of one row, each made of the parent when its turn comes, with ``params`` parameters."""

    params: int
    draws: list[Callable[[PreTrainedModel], PreTrainedModel]]


@dataclass(frozen=True)
class BesideChild:
    """The networks beside a child by the names of their rows; ``note`` says what they are."""

    rows: Mapping[str, SameSize]
    note: str


def carvings(parent: Checkpoint, cut: Cut, progress: Progress) -> BesideChild:
    """Return random and uniform carvings of the size of a cut."""
    cuts = of_the_same_size(parent, cut, progress)
    rows = {
        name: SameSize(params_of(parent, several[0]), [partial(_carved, other) for other in several])
        for name, several in cuts.items()
    }
    return BesideChild(rows, COMPARED)


def _carved(cut: Cut, reference: PreTrainedModel) -> PreTrainedModel:
    return apply_in_memory(reference, cut)


def mixtures(
    child: Checkpoint, parent: Checkpoint, reference: PreTrainedModel, tokens: Tokens, progress: Progress
) -> BesideChild:
    """Return the parent with as many experts as a child, at random and by frequency."""
    count = fewer_experts(child, parent)
    if count is None or not lacks_experts_alone(child, parent):
        return BesideChild({}, not_compared(child, parent))
    masked = masked_mixtures(parent, count, reference, tokens, DRAW_SEEDS, progress)
    rows = {
        name: SameSize(
            costs_of(several[0].shaped(), CostModel())["params"], [partial(_masked, each) for each in several]
        )
        for name, several in masked.rows.items()
    }
    note = f"{MASKED} (random: {len(DRAW_SEEDS)} draws, mean; {FAVOURED})"
    return BesideChild(rows, "; ".join(filter(None, [note, masked.note])))


def layered_mixtures(child: Checkpoint, parent: Checkpoint) -> tuple[dict[str, Choice], str]:
    """Return how the parent gets as many experts as a child, layer by layer, by row, and a note on that.

    There are none where the child has lost, or has, anything else.
    """
    count = fewer_experts(child, parent)
    if count is None or not lacks_experts_alone(child, parent):
        return {}, "no other networks beside it"
    choices = choices_of(parent, count, DRAW_SEEDS[0])
    note = f"{MASKED} (random: one draw; {FAVOURED})"
    return choices, note if FREQUENCY in choices else f"{note}; {uncounted(parent)}"


def not_compared(child: Checkpoint, parent: Checkpoint) -> str:
    """Return why no carvings are beside a child."""
    return NARROWER if has_narrower_experts(child, parent) else NOT_COMPARED


def with_quantised(
    others: BesideChild, child: Checkpoint, parent: Checkpoint, reference: PreTrainedModel, progress: Progress
) -> BesideChild:
    """Return networks beside a child, and the parent quantised to its bytes, or a note why not that."""
    room = stored_bytes(child)
    try:
        quantised = quantised_parent(parent, reference, room, progress)
        row = SameSize(params_of(parent, None), [partial(_same_always, quantised.applied(reference))])
    except (ValueError, ModuleNotFoundError) as error:
        return BesideChild(others.rows, f"{others.note}; no {QUANTISED_PARENT}: {error}")
    note = (
        f"{QUANTISED_PARENT}: {quantised.bytes:,} of the child's {room:,} bytes, without importances: "
        f"{quantised.text} matrices"
    )
    return BesideChild({**others.rows, QUANTISED_PARENT: row}, f"{others.note}; {note}")


def _same_always(model: PreTrainedModel, _: PreTrainedModel) -> PreTrainedModel:
    return model


def _masked(fewer: FewerExperts, reference: PreTrainedModel) -> PreTrainedModel:
    return without_experts(reference, fewer)


def of_the_same_size(parent: Checkpoint, cut: Cut, progress: Progress = silent) -> dict[str, list[Cut]]:
    """Return ``random`` cuts, one a seed, with the sizes of this one, and the ``uniform`` one by capacity."""
    ledger = ledger_of(parent, progress=progress)
    capacity = criterion_of("capacity", parent, ledger)
    draws = [chosen(criterion_of("random", parent, ledger, seed=seed), cut) for seed in DRAW_SEEDS]
    if cut.narrowing:
        width, channels = cut.narrowing.width, weights_channels(parent)
        orders = [np.random.default_rng(seed).permutation(cut.parent.hidden) for seed in DRAW_SEEDS]
        streams = (channels.reordered(order).narrowing(width) for order in orders)
        draws = [replace(draw, narrowing=stream) for draw, stream in zip(draws, streams, strict=True)]
    return {"random": draws, "uniform": [chosen(capacity, uniform(parent, cut))]}


def chosen(criterion: Criterion, cut: Cut) -> Cut:
    """Return a cut of the same sizes, with the units that the criterion chooses and the same stream."""
    sizes = {kept.layer: (len(kept.groups), len(kept.ffn)) for kept in cut.layers}
    units = Cut.of(cut.parent, list(sizes), sizes.__getitem__, criterion.choose)
    return replace(units, narrowing=cut.narrowing)


def uniform(parent: Checkpoint, cut: Cut) -> Cut:
    """Return a cut of the same layers to the same sizes each, with as many parameters as this cut.

    They agree to within a neuron a layer. Of the numbers of KV groups that allow it, it has the one nearest
    to the cut's mean.
    """
    if cut.uniform:
        return cut
    depth, whole = len(cut.layers), cut.parent
    width = cut.narrowing.width if cut.narrowing else None
    sizes = tuple(range(1, whole.kv_heads + 1)), tuple(range(1, whole.ffn + 1))
    choices = Choices(*sizes, (depth,), width=width)
    prices = part_costs(parent, choices, CostModel())
    wanted = prices.of({kept.layer: (len(kept.groups), len(kept.ffn)) for kept in cut.layers})[PARAMS]
    layers = [prices.layers[kept.layer] for kept in cut.layers]
    groups, ffn = (
        np.sum([[costs[PARAMS] for costs in part.values()] for part in parts], axis=0)
        for parts in ([layer.groups for layer in layers], [layer.ffn for layer in layers])
    )
    rest = prices.outside[PARAMS] + sum(layer.rest[PARAMS] for layer in layers)
    apart = np.abs(rest + np.add.outer(groups, ffn) - wanted)  # (groups, ffn)
    least, neuron = apart.min(axis=1), np.diff(ffn[:2]).sum()
    mean = fmean(len(kept.groups) for kept in cut.layers)
    possible = np.flatnonzero(least <= max(neuron, least.min()))
    g = min(possible.tolist(), key=lambda place: abs(choices.groups[place] - mean))
    return cut_to(cut, choices.groups[g], choices.ffn[int(apart[g].argmin())])


def cut_to(like: Cut, groups: int, ffn: int) -> Cut:
    """Return a cut of the same layers and stream with so many units of each."""
    cut = Cut.of(like.parent, [layer.layer for layer in like.layers], lambda layer: (groups, ffn))
    return replace(cut, narrowing=like.narrowing)
