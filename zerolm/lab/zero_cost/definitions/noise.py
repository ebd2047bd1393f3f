"""Proxies of how much gradients vary from micro-batch to micro-batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from zerolm.architecture import Floats, Ints
from zerolm.lab.zero_cost.combine import layers_in, lswag, occurrences, select_layers
from zerolm.lab.zero_cost.definitions.activations import enough_patterns, patterns
from zerolm.lab.zero_cost.definitions.matrix_terms import total
from zerolm.lab.zero_cost.passes import Passes
from zerolm.lab.zero_cost.registry import LeftOut, Pool, proxy


@proxy("zico", source="ZiCo, arXiv 2301.11300, equation 8", needs=["moments"])
def zico(passes: Passes) -> float:
    """Sum over matrices of ln sum(E|g| / sd(g)) over weights whose gradient varies.

    The deviation is that of g with its sign, as the authors compute it; their text has that of |g|.
    Faithful: gradients are not set to zero between micro-batches, as in released code.
    """
    _enough_parts(passes)
    terms = []
    for moments in passes.loss.moments.values():
        deviation = moments.signed.variance.double().sqrt()
        varies = deviation > 0
        terms.append(float((moments.absolute.mean.double()[varies] / deviation[varies]).sum()))
    return total(math.log(term) for term in terms if term > 0)


def selected(pool: Pool) -> dict[str, Sequence[float]]:
    """Return L-SWAG on the layers where gradients of all candidates together vary most, and on all layers.

    The second is the limit for a space so shallow that the first looks at a single layer.
    """
    unpacked = [_unpack(row) for row in pool]
    chosen = select_layers([sigma for _, sigma, _ in unpacked])
    return {
        "l_swag": [lswag(lam, fresh, layers_in(chosen, len(lam))) for lam, _, fresh in unpacked],
        "l_swag_all_layers": [lswag(lam, fresh, range(len(lam))) for lam, _, fresh in unpacked],
    }


@proxy(
    "l_swag", source="L-SWAG, arXiv 2505.07300, equations 5-8", needs=["moments", "codes"], finish=selected
)
def l_swag(passes: Passes) -> Sequence[float]:
    """Of each of L layers ln sum 1 / sd(|g|) and mean ln sd(|g|), then ``occurrences`` of its codes.

    (L,) each and (L + 1, L), one after the other. Faithful: gradients accumulate, as for ``zico``.
    """
    _enough_parts(passes)
    enough_patterns(passes)
    depth = passes.linears[-1].layer + 1
    deviations: list[list[Tensor]] = [[] for _ in range(depth)]
    for linear, moments in passes.loss.moments.items():
        sd = moments.absolute.variance.double().sqrt()
        deviations[linear.layer].append(sd[sd > 0])
    layers = [torch.cat(of_layer) for of_layer in deviations]
    if any(not len(deviation) for deviation in layers):
        raise LeftOut("the gradients of a layer do not vary at all")
    codes: list[list[Ints]] = [[] for _ in range(depth)]
    for linear, numbers in zip(passes.activations.codes, patterns(passes), strict=True):
        codes[linear.layer].append(numbers)
    nothing = np.zeros(0, np.int64)
    fresh = occurrences([np.concatenate([nothing, *of_layer]) for of_layer in codes])
    inverse = [math.log(float((1 / deviation).sum())) for deviation in layers]
    spread = [float(deviation.log().mean()) for deviation in layers]
    return (*inverse, *spread, *map(float, fresh.ravel()))


def _unpack(row: Sequence[float]) -> tuple[Floats, Floats, Ints]:
    """Return the parts of a row of L + L + (L + 1) L = L (L + 3) numbers."""
    depth = (math.isqrt(9 + 4 * len(row)) - 3) // 2
    values = np.array(row, np.float64)
    fresh = values[2 * depth :].astype(np.int64).reshape(depth + 1, depth)
    return values[:depth], values[depth : 2 * depth], fresh


def _enough_parts(passes: Passes) -> None:
    if passes.protocol.parts < 2:
        raise LeftOut("it compares micro-batches: there must be two at least")
