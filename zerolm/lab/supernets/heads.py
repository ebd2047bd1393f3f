"""Heads of a path that repeat each other: how alike they are, and the path with fewer of them.

By centred kernel alignment (CKA), arXiv 1905.00414, unbiased after Song et al., JMLR 13, 2012; fused by
algorithm 1 of ELM, arXiv 2510.27037.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

from zerolm.architecture import Architecture
from zerolm.lab.spaces.elastic import Elastic
from zerolm.lab.supernets.distillation import watched
from zerolm.networks.modules.layer import Stack, part

THRESHOLD: Final = 0.9


@torch.no_grad()
def head_similarity(
    network: Stack, ids: Tensor, *, tokens: bool = False, unbiased: bool = False
) -> list[Tensor]:
    """Return the CKA of each two heads of every layer, (heads, heads), on token ids (b, t).

    Samples are sequences, all tokens of one in a row, as in ELM, or single ``tokens``.
    """
    modules = [part(layer, "attention").get_submodule("context") for layer in network.layers]
    with watched(modules) as contexts:
        network(ids, 1)
    axes = (1, 2) if tokens else (2, 3)
    heads_first = (x.transpose(0, 1) for x in contexts)  # (heads, b, t, s)
    return [cka(x.flatten(*axes), unbiased) for x in heads_first]


def with_fewer_heads(
    space: Elastic, architecture: Architecture, alike: Sequence[Tensor], mode: str
) -> Architecture:
    """Return the architecture with heads fused or removed where they resemble each other too much."""
    layers = []
    for choice, layer, similarity in zip(
        architecture.choices["layers"], architecture.layers, alike, strict=True
    ):
        width, heads = layer.query_width, int(choice["heads"])
        if mode == "fuse":
            fewer = merged_heads(similarity, width)
            while choice["block"] == "llama" and (width % fewer or width // fewer % 2):
                fewer -= 1  # rotary positions turn pairs
            layers.append({**choice, "heads": fewer})
        else:
            rest = heads - len(removed(similarity))
            layers.append({**choice, "heads": rest, "head_size": width // heads})
    return space.read({"layers": layers})


def without_heads(
    state: Mapping[str, Tensor], architecture: Architecture, alike: Sequence[Tensor]
) -> dict[str, Tensor]:
    """Return the weights of an architecture's network, by name, without the heads that are removed."""
    cut = dict(state)
    for number, similarity in enumerate(alike):
        heads, gone = len(similarity), removed(similarity)
        rest = [head for head in range(heads) if head not in gone]
        for name in (name for name in state if name.startswith(f"layers.{number}.attention.")):
            module, kind = name.split(".")[-2:]
            value = state[name]
            if module in ("q", "k", "v"):
                parts = value.reshape(heads, -1, *value.shape[1:])
                cut[name] = parts[rest].flatten(0, 1)
            elif module == "o" and kind == "weight":
                cut[name] = value.reshape(len(value), heads, -1)[:, rest].flatten(1)
    return cut


def cka(contexts: Tensor, unbiased: bool = False) -> Tensor:
    """Return the linear CKA of each two heads, (heads, heads), in float64.

    ``contexts`` (heads, n, d) are what each head says of n samples: of sequences, all tokens of one in a row,
    or of tokens. The biased estimator is 1 at most, and too high where n is far below d; the unbiased one is
    about 0 of independent heads. A head that says the same of all samples resembles none, not even itself.
    """
    values = contexts.detach().double()
    centred = values - values.mean(1, keepdim=True)  # changes no centred kernel, and loses no digits
    scale = centred.abs().amax((1, 2), keepdim=True)
    still = scale <= 1e-12 * values.abs().amax((1, 2), keepdim=True)
    centred = centred / scale.masked_fill(still, 1.0) * ~still
    grams = centred @ centred.mT  # (heads, n, n)
    grams = _unbiased(grams) if unbiased else _centred(grams)
    rows = grams.flatten(1)
    norms = rows.norm(dim=1)
    products = norms[:, None] * norms
    similarity: Tensor = (rows @ rows.T) / products.masked_fill(products == 0, 1.0)
    return similarity


def removed(similarity: Tensor, threshold: float = THRESHOLD) -> tuple[int, ...]:
    """Return the heads that an earlier one, which stays, resembles more than the threshold, ascending."""
    gone: set[int] = set()
    for head, row in enumerate(similarity.tolist()):
        if head not in gone:
            gone |= {other for other in range(head + 1, len(row)) if row[other] > threshold}
    return tuple(sorted(gone))


def merged_heads(similarity: Tensor, width: int) -> int:
    """Return the number of heads after fusion in an attention of this width: a divisor of the width.

    The heads that are left divide the width anew (algorithm 1): no weight is cut, each head is wider.
    """
    heads = len(similarity) - len(removed(similarity))
    while width % heads:
        heads -= 1
    return heads


def _centred(grams: Tensor) -> Tensor:
    """Return H G H of kernels (heads, n, n), H the centring matrix."""
    return (
        grams - grams.mean(1, keepdim=True) - grams.mean(2, keepdim=True) + grams.mean((1, 2), keepdim=True)
    )


def _unbiased(grams: Tensor) -> Tensor:
    """Return kernels centred so that their inner products are n (n - 3) times the unbiased HSIC.

    (Szekely and Rizzo, 2014: the diagonal counts nowhere.)
    """
    n = grams.shape[1]
    off = ~torch.eye(n, dtype=torch.bool, device=grams.device)
    hollow = grams * off
    rows = hollow.sum(2, keepdim=True) / (n - 2)
    every = hollow.sum((1, 2), keepdim=True) / ((n - 1) * (n - 2))
    return (hollow - rows - rows.mT + every) * off
