"""Weights of tokens for squared errors behind an output matrix (torch).

Norms divide by the root mean square of the stream, and a norm behind the matrix by that of its output. So an
error counts relative to both: else the few tokens with massive activations (arXiv 2402.17762) would decide
all. Where the first token of a window has them, attention of all others rests on it (arXiv 2309.17453), and
it counts as all others together. Of the squared gradients at FFN outputs of Gemma 3 270M and
Qwen2.5-Coder-0.5B, relative to these sizes, first tokens then have half and more in most layers.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from zerolm.networks.blocks import Blocks
from zerolm.networks.roles import BEHIND_NORMS, StockLayer

TINY: Final = 1e-12
MASSIVE: Final = 100.0
"""A first token with so many times the mean square of the others, in the median, has massive activations."""


def token_weights(
    blocks: Blocks, index: int, layer: StockLayer, stream: Tensor, output: Tensor | None
) -> Tensor:
    """Return the weights (b, t) of tokens of a batch; 0 of padding.

    ``stream`` (b, t, d) is what the norm that follows divides, ``output`` (b, t, d) what is added to it.
    """
    size = mean_square(stream)
    scale = size
    if layer.norm in BEHIND_NORMS and output is not None:
        scale = size * mean_square(output)
    tokens = blocks.tokens(index)
    weights: Tensor = tokens / scale
    if blocks.predicts and weights.shape[1] > 1:
        is_sink = tokens[:, 0] & (size[:, 0] > MASSIVE * size[:, 1:].median(1).values)
        weights[:, 0] = torch.where(is_sink, weights[:, 1:].sum(1), weights[:, 0])
    return weights


def mean_square(states: Tensor) -> Tensor:
    """Return the mean square of states (b, t, d) over components, (b, t)."""
    return states.float().square().mean(-1).clamp_min(TINY)
