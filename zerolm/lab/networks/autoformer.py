"""A network cut out of an AutoFormer supernet (arXiv 2107.00651): relative positions in every layer."""

from __future__ import annotations

from math import isqrt
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from zerolm.architecture import Architecture
from zerolm.lab.networks.vision import PATCH, Patches, VisionEnd, vision_layer
from zerolm.networks.modules.attention import FusedAttention, dot, merge, split
from zerolm.networks.modules.embeddings import LinearHead
from zerolm.networks.modules.layer import Stack

FARTHEST: Final = 14
EPS: Final = 1e-5


def autoformer(architecture: Architecture) -> Stack:
    """Heads and FFN width of its own in every layer; the head reads the mean of the patches."""
    (head,), d = architecture.ends.head_matrices, architecture.layers[0].width
    layers = [
        vision_layer(layer, GridAttention(d, layer.query_width, int(heads)), EPS)
        for layer, heads in zip(architecture.layers, architecture.choices["num_heads"], strict=True)
    ]
    return Stack(
        Patches(d, PATCH, 14 * 14 + 1), layers, VisionEnd(d, EPS, mean=True), LinearHead(d, head.rows)
    )


class GridAttention(FusedAttention):
    """Attention with relative positions in keys and values (arXiv 1803.02155)."""

    def __init__(self, d: int, width: int, heads: int) -> None:
        super().__init__(d, width, heads, dropout=0.0)
        self.keys, self.values = (GridPositions(width // heads) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (split(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))  # (b, heads, t, s)
        t, s = q.shape[-2:]
        where = torch.einsum("bhts,tus->bhtu", q, self.keys(t)) / s**0.5
        probabilities = self.probabilities(dot(q, k) + where)
        seen = probabilities @ v + torch.einsum("bhtu,tus->bhts", probabilities, self.values(t))
        out: Tensor = self.o(merge(seen))
        return out


class GridPositions(nn.Module):
    """A vector for every two of t tokens, (t, t, s): one for the rows between them plus one for the columns.

    Tokens after the first lie in a square. Distances end at 14; entry 0 of a table is for the class token.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.rows, self.columns = (nn.Parameter(torch.empty(2 * FARTHEST + 2, size)) for _ in range(2))

    def forward(self, t: int) -> Tensor:
        places = torch.arange(t - 1, device=self.rows.device)
        side = isqrt(t - 1)
        return self.rows[_distances(places // side)] + self.columns[_distances(places % side)]


def _distances(places: Tensor) -> Tensor:
    """Rows of a table (t, t) for places (t - 1,) on one axis."""
    steps = (places[None, :] - places[:, None]).clamp(-FARTHEST, FARTHEST)
    return pad(steps + FARTHEST + 1, (1, 0, 1, 0))
