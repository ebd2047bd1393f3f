"""Losses of single cuts, each measured: the truth of what is foretold of them, and a table for plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from transformers import PreTrainedModel

from zerolm.architecture import Floats, Ints
from zerolm.carving.loss import LOSS_BATCH, Loss
from zerolm.io.cache import ArrayCache
from zerolm.networks.blocks import Blocks
from zerolm.networks.pooling import MEAN, TokenPooling
from zerolm.planning.loss_table import LossTable, StreamLosses
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.pruning import dimensions_of
from zerolm.units.stream.narrowing import Basis, Width

SHARES: Final = (0.0, 0.125, 0.25, 0.5, 0.625, 0.75, 0.875)
"""Of the units of a layer, where there are more than ``FEW``; at least one is kept."""
FEW: Final = 8
STREAM_SHARES: Final = (0.25, 0.375, 0.5, 0.625, 0.75, 0.875)
SEQUENCES: Final = 64


def measured_losses(
    model: PreTrainedModel,
    tokens: Tokens,
    by: Criterion,
    kinds: Sequence[str],
    *,
    pooling: TokenPooling = MEAN,
    cache: ArrayCache = ArrayCache(),  # noqa: B008
    progress: Progress = silent,
) -> LossTable:
    """Return the losses of cutting one layer alone to a few sizes by a criterion, and without it.

    The ``cache``, of this criterion, keeps those of a layer.
    """
    loss, whole = loss_on(model, tokens, pooling), Cut.whole(dimensions_of(model))
    sizes = {
        kind: sizes_of(count) if kind in kinds else np.array([count])
        for kind, count in whole.parent.wholes.items()
    }
    rows = []
    for place, kept in enumerate(whole.layers):
        progress("measuring cuts of each layer", place, len(whole.layers))
        row = cache.get(f"layer-{place}")
        if row is None:
            below, above = whole.layers[:place], whole.layers[place + 1 :]
            row = {"gone": np.array(loss.of_cut(replace(whole, layers=(*below, *above))))}
            for kind, counts in sizes.items():
                units = (by.choose(place, kind, count) for count in counts[:-1].tolist())
                cuts = (LayerCut(place, {**kept.kept, kind: each}) for each in units)
                losses = [loss.of_cut(replace(whole, layers=(*below, cut, *above))) for cut in cuts]
                row[kind] = np.array([*losses, 0.0])
            cache.put(f"layer-{place}", row)
        rows.append(row)
    gone = np.array([float(row["gone"]) for row in rows])
    return LossTable(by, sizes, {kind: [row[kind] for row in rows] for kind in sizes}, gone)


def stream_losses(
    model: PreTrainedModel,
    tokens: Tokens,
    basis: Basis,
    *,
    tied: bool,
    cache: ArrayCache = ArrayCache(),  # noqa: B008
) -> StreamLosses:
    """Return the losses of a narrower stream alone, of a ``tied`` parent with a head of its own too."""
    loss, whole = loss_on(model, tokens), Cut.whole(dimensions_of(model))
    hidden = whole.parent.hidden
    sizes = np.unique([max(1, round(share * hidden)) for share in STREAM_SHARES])

    def of(width: Width) -> float:
        name = f"{width.hidden}-{width.tied}"
        row = cache.get(name)
        if row is None:
            row = {"loss": np.array(loss.of_cut(replace(whole, narrowing=basis.narrowing(width))))}
            cache.put(name, row)
        return float(row["loss"])

    losses: dict[bool, Floats] = {
        head: np.array([*(of(Width(size, head)) for size in sizes.tolist()), 0.0]) for head in {False, tied}
    }
    return StreamLosses(np.append(sizes, hidden), losses)


def loss_on(model: PreTrainedModel, tokens: Tokens, pooling: TokenPooling = MEAN) -> Loss:
    """Return the loss on some of these tokens."""
    return Loss(Blocks(model, tokens.spread(SEQUENCES).filled(LOSS_BATCH)), pooling)


def sizes_of(whole: int) -> Ints:
    """Return the sizes that are measured, ascending, the whole last."""
    if whole <= FEW:
        return np.arange(1, whole + 1)
    return np.unique([max(1, round(share * whole)) for share in (*SHARES, 1.0)])
