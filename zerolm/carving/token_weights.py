"""What the squared error of a token counts behind an output matrix (torch).

Norms divide by the root mean square of the stream, and a norm behind the matrix by that of its output. So an
error counts relative to both: else the few tokens with massive activations (arXiv 2402.17762) would decide
all. The first token of a window is what attention of all others rests on (arXiv 2309.17453), so that it
counts as all others together. Of gradients at FFN outputs of Gemma 3 270M and Qwen2.5-Coder-0.5B, each
relative to these sizes, first tokens have half of the squares and more in most layers.
"""

from __future__ import annotations

from typing import Final

from torch import Tensor

from zerolm.networks.blocks import Blocks
from zerolm.networks.roles import BEHIND_NORMS, StockLayer

TINY: Final = 1e-12


def token_weights(
    blocks: Blocks, index: int, layer: StockLayer, stream: Tensor, output: Tensor | None
) -> Tensor:
    """Return the weights (b, t) of tokens of a batch; 0 of padding.

    ``stream`` (b, t, d) is what the norm that follows divides, ``output`` (b, t, d) what is added to it.
    """
    scale = mean_square(stream)
    if layer.norm in BEHIND_NORMS and output is not None:
        scale = scale * mean_square(output)
    weights: Tensor = blocks.tokens(index) / scale
    if blocks.predicts and weights.shape[1] > 1:
        weights[:, 0] = weights[:, 1:].sum(1) * blocks.tokens(index)[:, 0]
    return weights


def mean_square(states: Tensor) -> Tensor:
    """Return the mean square of states (b, t, d) over components, (b, t)."""
    return states.float().square().mean(-1).clamp_min(TINY)
