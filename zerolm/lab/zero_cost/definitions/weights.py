"""Proxies of shapes and weights: no data, no pass."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from zerolm.lab.zero_cost.definitions.matrix_terms import attention, ffn, total
from zerolm.lab.zero_cost.passes import Passes
from zerolm.lab.zero_cost.passes.shared import singular_values
from zerolm.lab.zero_cost.registry import Pool, proxy
from zerolm.networks.network import Linear
from zerolm.scores.capacity import ALPHAS


@proxy("params", source="a count: all parameters, tied ones once")
def params(passes: Passes) -> float:
    """The number of parameters."""
    return float(passes.network.params)


@proxy("decoder_params", source="LiteTransformerSearch, arXiv 2203.02094, section 3")
def decoder_params(passes: Passes) -> float:
    """Weights and biases of attention and FFN, without norms and embeddings."""
    biases = (linear.bias for linear in passes.linears)
    return float(
        sum(passes.weight(linear).numel() for linear in passes.linears)
        + sum(bias.numel() for bias in biases if bias is not None)
    )


def zerolm_alphas(pool: Pool) -> dict[str, Sequence[float]]:
    """Return alpha S_attn + (1 - alpha) S_ffn at each alpha."""
    return {f"zerolm_weights {alpha:g}": [alpha * a + (1 - alpha) * f for a, f in pool] for alpha in ALPHAS}


@proxy("zerolm_weights", source="ZeroLM, arXiv 2503.18646, equations 3-7", finish=zerolm_alphas)
def zerolm(passes: Passes) -> Sequence[float]:
    """S_attn and S_ffn: sums of ||W||_F^2 / min(n, m), the mean squared singular value."""

    def capacity(linears: Sequence[Linear]) -> float:
        matrices = (passes.weight(linear).double() for linear in linears)
        return total(w.square().sum() / min(w.shape) for w in matrices)

    return capacity(attention(passes)), capacity(ffn(passes))


@proxy("spectral_capacity_weights", source="NSC, arXiv 2609.23087: sum of ln(1 + sigma^2) of the weights")
def spectral_capacity(passes: Passes) -> float:
    """Over the singular values of every projection; a fused QKV matrix is three, in every mode."""
    matrices = (passes.weight(linear) for linear in passes.projections)
    return total(torch.log1p(singular_values(matrix).square()).sum() for matrix in matrices)


@proxy("log_complexity_weights", source="ZeroLM, arXiv 2503.18646, figure 3: sum of ln ||W||_F")
def log_complexity(passes: Passes) -> float:
    """A matrix of zeros is left out."""
    norms = (float(passes.weight(linear).double().norm()) for linear in passes.linears)
    return total(math.log(norm) for norm in norms if norm != 0)


@proxy(
    "lpzero_surrogate",
    source="LPZero, arXiv 2410.04808, the GPT-2 formula where gradients vanish",
    higher_is_better=False,
)
def lpzero_surrogate(passes: Passes) -> float:
    """Mean over matrices of mean(W^2) + m^-2, m the inputs: the softmax of equal gradients is 1 / m."""
    terms = [
        float(passes.weight(linear).double().square().mean()) + passes.weight(linear).shape[1] ** -2
        for linear in passes.linears
    ]
    return total(terms) / len(terms)
