"""Second moments of the gradients of a parent's loss: one forward and one backward pass for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from transformers import PreTrainedModel

from zerolm.io.cache import ArrayCache
from zerolm.networks.blocks import Blocks
from zerolm.networks.pooling import MEAN, TokenPooling
from zerolm.passes.fisher import Fisher, FisherSums
from zerolm.passes.matrix_moments import MatrixMoments, MatrixSums, Place
from zerolm.passes.walk import Accumulator, walk
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens

MOMENT_TOKENS: Final = 1 << 13
"""Largest number of tokens, of evenly spread sequences."""
MOMENT_BATCH: Final = 2


@dataclass(frozen=True, eq=False)
class LossMoments:
    """The Fisher information of all outputs, and the moments of ``matrices``: empty if not requested."""

    fisher: Fisher
    matrices: Mapping[Place, MatrixMoments]


def loss_moments(
    model: PreTrainedModel,
    tokens: Tokens,
    *,
    with_stream: bool = False,
    with_matrices: bool = False,
    pooling: TokenPooling = MEAN,
    progress: Progress = silent,
    cache: ArrayCache = ArrayCache(),  # noqa: B008
) -> LossMoments:
    """Return the Fisher information of all outputs, and if requested that of the stream and of matrices.

    ``with_stream``, and ``with_matrices`` of a decoder, require norms that are root mean squares.
    ``pooling`` makes an encoder's embeddings. Memory holds the hidden states of a few batches, one for each
    layer. Sums in the ``cache`` are resumed. Raises ``ValueError`` where a gradient is not finite.
    """
    blocks = Blocks(model, tokens.most(MOMENT_TOKENS).filled(MOMENT_BATCH))
    fisher = FisherSums(blocks, with_stream=with_stream)
    matrices = MatrixSums(blocks) if with_matrices else None
    sums: dict[str, Accumulator] = {"fisher": fisher, **({} if matrices is None else {"matrices": matrices})}
    walk(blocks, sums, cache, "computing Fisher information", pooling=pooling, progress=progress)
    return LossMoments(fisher.fisher(blocks), {} if matrices is None else matrices.matrices(blocks))
