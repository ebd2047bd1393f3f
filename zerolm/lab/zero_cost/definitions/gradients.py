"""Proxies of the gradient G of the loss by the weights W of each matrix."""

from __future__ import annotations

import math

import torch

from zerolm.lab.zero_cost.definitions.matrix_terms import added, attention, decoder_or, ffn, total
from zerolm.lab.zero_cost.passes import Passes
from zerolm.lab.zero_cost.passes.shared import nuclear
from zerolm.lab.zero_cost.registry import proxy
from zerolm.networks.network import Linear


def saliency(passes: Passes, linear: Linear) -> float:
    """Return the sum of |W G| of one matrix."""
    return float(added((passes.weight(linear) * passes.gradient(linear)).abs()))


@proxy("grad_norm", source="Abdelfattah et al., arXiv 2101.08134, section 3.1", needs=["gradients"])
def grad_norm(passes: Passes) -> float:
    """Sum of the Frobenius norms of G."""
    return total(passes.gradient(linear).double().norm() for linear in passes.linears)


@proxy("snip", source="SNIP, arXiv 1810.02340, equation 4", needs=["gradients"])
def snip(passes: Passes) -> float:
    """Sum of |W G|: the gradient by a mask of ones, without masks."""
    return total(saliency(passes, linear) for linear in passes.linears)


@proxy("plain", source="Abdelfattah et al., arXiv 2101.08134, appendix", needs=["gradients"])
def plain(passes: Passes) -> float:
    """Sum of W G, with its sign."""
    return total(added(passes.weight(linear) * passes.gradient(linear)) for linear in passes.linears)


@proxy("fisher", source="BlockSwap, arXiv 1906.04113, equation 2", needs=["fisher"])
def fisher(passes: Passes) -> float:
    """Half the mean square, over samples, of output times gradient added over tokens, for all outputs.

    Faithful: over samples and tokens, times the inputs of a matrix (the outputs where released code
    mistakes a transposed matrix for a plain one, in decoders).
    """
    if not passes.protocol.faithful:
        return total(by_sample for _, by_sample in passes.activations.fisher.values())
    side = 0 if passes.network.task == "next" else 1
    return total(
        by_token * passes.weight(linear).shape[side]
        for linear, (by_token, _) in passes.activations.fisher.items()
    )


@proxy("synaptic_saliency", source="TF-TAS, arXiv 2203.12217, equation 5", needs=["gradients"])
def synaptic_saliency(passes: Passes) -> float:
    """Sum of |W G| over FFN."""
    return total(saliency(passes, linear) for linear in decoder_or(passes, ffn))


@proxy("synaptic_diversity", source="TF-TAS, arXiv 2203.12217, equation 4", needs=["gradients"])
def synaptic_diversity(passes: Passes) -> float:
    """Sum over attention of ||W||_* ||G||_*, nuclear norms."""
    chosen = decoder_or(passes, attention)
    return total(nuclear(passes.weight(linear)) * nuclear(passes.gradient(linear)) for linear in chosen)


@proxy(
    "head_importance",
    source="Serianni and Kalita, ACL 2023, after Michel et al., arXiv 1905.10650",
    needs=["gradients"],
)
def head_importance(passes: Passes) -> float:
    """Sum of |W G| over attention.

    Faithful: only matrices of at least 128 outputs and not the output projection; of decoders all
    matrices of at least 128 inputs.
    """
    if not passes.protocol.faithful:
        return total(saliency(passes, linear) for linear in attention(passes))
    if passes.network.task == "next":
        chosen = [linear for linear in passes.linears if passes.weight(linear).shape[1] >= 128]
    else:
        inner = (linear for linear in attention(passes) if linear.name != "o")
        chosen = [linear for linear in inner if passes.weight(linear).shape[0] >= 128]
    return total(saliency(passes, linear) for linear in chosen)


@proxy("eznas", source="EZNAS, arXiv 2209.07413, figure 3", needs=["gradients"])
def eznas(passes: Passes) -> float:
    """Sum over attention of the sigmoid of ln |det(S S^T)|, S the signs of G: how many have full row rank."""
    return total(map(_full_rank, (passes.gradient(linear) for linear in decoder_or(passes, attention))))


def _full_rank(g: torch.Tensor) -> float:
    """Return det / (1 + det) of S S^T, a matrix of integers: 0 where it is singular, else nearly 1."""
    if g.shape[0] > g.shape[1]:
        return 0.0
    signs = g.double().sign()
    values = torch.linalg.eigvalsh(signs @ signs.T)  # ascending
    if float(values[0]) <= len(values) * torch.finfo(values.dtype).eps * float(values[-1]):
        return 0.0
    return 1 / (1 + math.exp(-max(float(values.log().sum()), 0.0)))


@proxy("lpzero_gpt2", source="LPZero, arXiv 2410.04808, GPT-2", needs=["gradients"], higher_is_better=False)
def lpzero_gpt2(passes: Passes) -> float:
    """Mean over matrices of mean(W^2) + mean(softmax(G)^2), softmax over a matrix's inputs."""
    terms = [
        float(passes.weight(linear).double().square().mean())
        + float(passes.gradient(linear).double().softmax(1).square().mean())
        for linear in passes.linears
    ]
    return total(terms) / len(terms)


@proxy("grasp", source="GraSP, arXiv 2002.07376, equation 8", needs=["gradients", "curvature"])
def grasp(passes: Passes) -> float:
    """Sum of -W (H G), H the Hessian of the loss: -W^T H G = -G^T (H W), for H is symmetric."""
    return -total(added(passes.gradient(linear) * passes.curvature(linear)) for linear in passes.linears)
