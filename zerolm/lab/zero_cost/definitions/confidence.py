"""Proxies of how sharply a network singles out tokens."""

from __future__ import annotations

from typing import Final

from torch import Tensor

from zerolm.lab.zero_cost.definitions.matrix_terms import attention, decoder_or, total
from zerolm.lab.zero_cost.passes import Look, Passes
from zerolm.lab.zero_cost.registry import proxy
from zerolm.networks.network import Linear

ENTRIES: Final = ("q", "k", "v", "qkv", "mix", "weight")
"""Query, key, value, input and weight of released code; qkv where it goes by modules, in faithful mode."""


def entries(passes: Passes) -> list[Linear]:
    """Return the matrices that lead into attention, or into what stands in its place."""
    return [linear for linear in attention(passes) if linear.name in ENTRIES]


@proxy(
    "head_confidence",
    source="Serianni and Kalita, ACL 2023; attention confidence of LPZero and ZeroLM",
    needs=["outputs"],
)
def head_confidence(passes: Passes) -> float:
    """Sum over the matrices that lead into attention of the mean largest output over tokens."""
    return total(passes.activations.outputs[linear][0] for linear in decoder_or(passes, entries))


def largest(p: Tensor) -> tuple[float, float]:
    """Return means of the largest attention weight (b, heads, t, t) over heads, and over keys."""
    return p.amax(1).mean().item(), p.amax(-1).mean().item()


PROBABILITIES: Final = Look("probabilities", lambda network: network.attentions, largest)


@proxy("softmax_confidence", source="Serianni and Kalita, ACL 2023, section 4.2", needs=[PROBABILITIES])
def softmax_confidence(passes: Passes) -> float:
    """Sum over layers of the mean largest attention weight over keys; faithful: over heads, as coded.

    A layer without attention adds nothing.
    """
    return total(heads if passes.protocol.faithful else keys for heads, keys in passes.looked(PROBABILITIES))


@proxy("lpzero_bert", source="LPZero, arXiv 2410.04808, FlexiBERT", needs=["outputs"])
def lpzero_bert(passes: Passes) -> float:
    """Mean over layers of the mean square of what the first matrix gives.

    The formula's second term, the log-softmax of a single number, is 0.
    """
    first: dict[int, float] = {}
    for linear in entries(passes):
        first.setdefault(linear.layer, passes.activations.outputs[linear][1])
    return total(first.values()) / len(first)
