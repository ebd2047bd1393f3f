"""Weights of tokens for squared errors behind an output matrix (torch).

An error e of an output costs ||G||^2 ||e||^2 on average, G the gradient there. Norms divide by the root mean
square of the stream, and a norm behind the matrix by that of its output, so gradients are larger where these
are small. The first token of a window is an attention sink for all others (arXiv 2309.17453), and has massive
activations (arXiv 2402.17762) in most decoders: its gradients are measured.
"""

from __future__ import annotations

from typing import Final

from torch import Tensor

from zerolm.networks.blocks import Blocks
from zerolm.networks.roles import BEHIND_NORMS, StockLayer

TINY: Final = 1e-12


def token_weights(
    blocks: Blocks,
    index: int,
    layer: StockLayer,
    stream: Tensor,
    output: Tensor | None,
    first: float | None = None,
) -> Tensor:
    """Return the weights (b, t) of tokens of a batch; 0 for padding.

    ``stream`` (b, t, d) is the input of the norm that follows, ``output`` (b, t, d) what is added to it.
    ``first`` is the squared gradient of first tokens in units of the mean of the others', if known.
    """
    scale = mean_square(stream)
    if layer.norm in BEHIND_NORMS and output is not None:
        scale = scale * mean_square(output)
    tokens = blocks.tokens(index)
    weights: Tensor = tokens / scale
    if first is not None and weights.shape[1] > 1:
        mean = weights[:, 1:].sum(1) / tokens[:, 1:].sum(1).clamp_min(1)
        weights[:, 0] = first * mean * tokens[:, 0]
    return weights


def mean_square(states: Tensor) -> Tensor:
    """Return the mean square of states (b, t, d) over components, (b, t)."""
    return states.float().square().mean(-1).clamp_min(TINY)
