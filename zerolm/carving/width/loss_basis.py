"""A basis of the stream by what the loss feels of it (torch)."""

from __future__ import annotations

from typing import Final

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from zerolm.architecture import Floats
from zerolm.carving.backward import (
    Reading,
    felt_by_head,
    normalised,
    readers,
    readings_of,
    together,
)
from zerolm.carving.width.narrowing import Basis, energies, ordered_basis
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.networks.blocks import Blocks
from zerolm.networks.roles import norm_gain
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens

BY_LOSS: Final = "loss"
BASIS_TOKENS: Final = 1 << 13
"""So many, of sequences evenly spread, suffice: second moments hardly move with more."""
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

    Hidden states of a few batches are in memory, one of each layer. Sums that are in the ``cache`` are gone
    on with.
    """
    blocks = Blocks(model, tokens.most(BASIS_TOKENS).batches(BASIS_BATCH))
    gain = norm_gain(model, "final_norm", None).double().cpu().numpy()
    sums: Arrays = {name: np.zeros((len(gain), len(gain))) for name in BASIS_SUMS}
    text = "weighing directions of the stream"
    for part in together(blocks, sums, cache, "sums", text, progress):
        upstream = []
        for index, last in zip(part.indices, part.states[-1], strict=True):
            reading, above = felt_by_head(blocks, index, last)
            sums["last"] += _add_reading(reading, blocks.tokens(index), sums)
            upstream.append(above)
        for felt in part.felt(upstream, readers):
            for reading in readings_of(felt, blocks):
                _add_reading(reading, felt.tokens, sums)
    energy, moments = sums["energy"], sums["last"]
    vectors = ordered_basis(energy, sums["metric"])
    return Basis(BY_LOSS, vectors, energies(vectors, energy), moments / np.trace(moments), gain)


def _add_reading(reading: Reading, tokens: Tensor, sums: Arrays) -> Floats:
    """Add what a norm reads, and return its second moments (d, d)."""
    stream, felt = (each[tokens].cpu().double() for each in (normalised(reading.stream), reading.felt))
    moments: Floats = (stream.T @ stream).numpy()
    sums["energy"] += moments
    sums["metric"] += (felt.T @ felt).numpy()
    return moments
