"""Sums over the matrices of a network, and which of them a proxy takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from zerolm.lab.zero_cost.passes import Passes
from zerolm.networks.network import Linear


def total(values: Iterable[float | Tensor]) -> float:
    """Return their sum, exactly rounded."""
    return math.fsum(map(float, values))


def attention(passes: Passes) -> list[Linear]:
    """Return the matrices of attention, or of what stands in its place."""
    return [linear for linear in passes.linears if linear.role == "attention"]


def ffn(passes: Passes) -> list[Linear]:
    return [linear for linear in passes.linears if linear.role == "ffn"]


def decoder_or(passes: Passes, otherwise: Callable[[Passes], list[Linear]]) -> Sequence[Linear]:
    """Return all matrices where the faithful mode meets a decoder, for released code hooks them all there."""
    if passes.protocol.faithful and passes.network.task == "next":
        return passes.linears
    return otherwise(passes)


def added(products: Tensor) -> Tensor:
    """Return the sum of all elements, in float64."""
    return products.double().sum()
