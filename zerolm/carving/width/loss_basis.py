"""A basis of the stream by what the loss feels of it (torch)."""

from __future__ import annotations

from typing import Final

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from zerolm.architecture import Floats
from zerolm.carving.backward import (
    SAVED,
    Reading,
    felt_by_head,
    felt_layers,
    normalised,
    readers,
    readings_of,
    states_of,
)
from zerolm.carving.width.narrowing import Basis, energies, ordered_basis
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.networks.blocks import Blocks
from zerolm.networks.roles import norm_gain
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens

BY_LOSS: Final = "loss"
BASIS_SEQUENCES: Final = 64
"""So many, evenly spread, suffice: second moments of a few thousand tokens hardly move."""
BASIS_BATCH: Final = 2
BASIS_SUMS: Final = ("energy", "metric", "last")


def loss_basis(
    model: PreTrainedModel,
    tokens: Tokens,
    *,
    progress: Progress = silent,
    cache: ArrayCache = ArrayCache(),  # noqa: B008
) -> Basis:
    """Return the basis that loses least of what the loss feels, to second order.

    Wherever a norm reads the stream, let x (d,) be the normalised stream without the norm's gain, and g (d,)
    the gradient of -log p(y) in it, for a y that is drawn from the model's own predictions. What goes of x is
    weighed by the Fisher information, the mean of g g^T; both x x^T and g g^T are summed over all norms.

    Hidden states of one batch are in memory, one of each layer. Sums that are in the ``cache`` are gone on
    with.
    """
    blocks = Blocks(model, tokens.spread(BASIS_SEQUENCES).batches(BASIS_BATCH))
    gain = norm_gain(model, "final_norm", None).double().cpu().numpy()
    count, size = len(blocks.batches), len(gain)
    zeros = {name: np.zeros((size, size)) for name in BASIS_SUMS}
    sums = cache.get("sums") or zeros | {"batches": np.array(0)}
    for index in range(int(sums["batches"]), count):
        progress("weighing directions of the stream", index, count)
        _add_batch(blocks, index, sums)
        if (index + 1) % max(1, count // SAVED) == 0:
            cache.put("sums", sums)
    energy, last = sums["energy"], sums["last"]
    vectors = ordered_basis(energy, sums["metric"])
    return Basis(BY_LOSS, vectors, energies(vectors, energy), last / np.trace(last), gain)


def _add_batch(blocks: Blocks, index: int, sums: Arrays) -> None:
    states, tokens = states_of(blocks, index), blocks.tokens(index)
    last, upstream = felt_by_head(blocks, index, states[-1])
    sums["last"] += _add_reading(last, tokens, sums)
    for felt in felt_layers(blocks, index, states, upstream, readers):
        for reading in readings_of(felt, blocks):
            _add_reading(reading, tokens, sums)
    sums["batches"] = np.array(index + 1)


def _add_reading(reading: Reading, tokens: Tensor, sums: Arrays) -> Floats:
    """Add what a norm reads, and return its second moments (d, d)."""
    x = normalised(reading.stream)[tokens].double().cpu()  # (n, d)
    g = reading.felt[tokens].double().cpu()  # (n, d)
    moments: Floats = (x.T @ x).numpy()
    sums["energy"] += moments
    sums["metric"] += (g.T @ g).numpy()
    return moments
