"""Vision transformers on images of 224 x 224, in parts that they share.

Networks are cut out of an AutoFormer supernet (arXiv 2107.00651), with relative positions in every layer, or
are PiTs (arXiv 2103.16302), in stages with fewer and wider tokens in each.
"""

from __future__ import annotations

from itertools import accumulate
from math import isqrt
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from zerolm.architecture import Architecture, Layer
from zerolm.networks.batch import IMAGE
from zerolm.networks.modules.attention import FusedAttention, dot, merge, split
from zerolm.networks.modules.embeddings import LinearHead
from zerolm.networks.modules.layer import FeedForward, PreNorm, ResidualLayer, Stack, ffn_widths

PATCH: Final = 16
AUTOFORMER_EPS: Final = 1e-5
PIT_EPS: Final = 1e-6
FARTHEST: Final = 14
"""The largest distance on one axis of relative positions."""


class Patches(nn.Module):
    """Patches of 16 pixels every ``stride``, a class token before them: images to (b, 1 + patches, d).

    Learned positions are added, to the class token too if there is one more of them than patches.
    """

    def __init__(self, d: int, stride: int, positions: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(IMAGE[0], d, PATCH, stride)
        self.token, self.positions = nn.Parameter(torch.empty(1, d)), nn.Parameter(torch.empty(positions, d))

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[1:] != IMAGE:
            raise ValueError(f"images of {tuple(images.shape[1:])} are given; this network takes {IMAGE}")
        patches = self.patches(images).flatten(2).mT  # (b, patches, d)
        hidden = torch.cat([self.token.expand(len(images), -1, -1), patches], dim=1)
        return hidden + pad(self.positions, (0, 0, hidden.shape[1] - len(self.positions), 0))


def vision_layer(layer: Layer, attention: nn.Module, eps: float) -> ResidualLayer:
    """Norm first, GELU, no dropout."""
    ffn, d = FeedForward(ffn_widths(layer)), layer.width
    return ResidualLayer(*(PreNorm(inner, nn.LayerNorm(d, eps), dropout=0.0) for inner in (attention, ffn)))


class VisionEnd(nn.Module):
    """The normalised class token, or the ``mean`` of the normalised patches, (b, t, d) to (b, d)."""

    def __init__(self, d: int, eps: float, *, mean: bool = False) -> None:
        super().__init__()
        self.norm, self.mean = nn.LayerNorm(d, eps), mean

    def forward(self, hidden: Tensor) -> Tensor:
        states: Tensor = self.norm(hidden if self.mean else hidden[:, :1])
        return states[:, 1:].mean(dim=1) if self.mean else states[:, 0]


def autoformer(architecture: Architecture) -> Stack:
    """Heads and FFN width of its own in every layer; the head reads the mean of the patches."""
    (head,), d = architecture.ends.head_matrices, architecture.layers[0].width
    layers = [
        vision_layer(layer, GridAttention(d, layer.query_width, int(heads)), AUTOFORMER_EPS)
        for layer, heads in zip(architecture.layers, architecture.choices["num_heads"], strict=True)
    ]
    end = VisionEnd(d, AUTOFORMER_EPS, mean=True)
    return Stack(Patches(d, PATCH, 14 * 14 + 1), layers, end, LinearHead(d, head.rows))


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


def pit(architecture: Architecture) -> Stack:
    """Depth and heads of its own in every stage; the head reads the class token."""
    depths, heads = architecture.choices["depth"], architecture.choices["num_heads"]
    (head,), shapes = architecture.ends.head_matrices, architecture.layers
    counts = [count for count, depth in zip(heads, depths, strict=True) for _ in range(depth)]
    layers = [
        vision_layer(shape, FusedAttention(shape.width, shape.width, count, dropout=0.0), PIT_EPS)
        for shape, count in zip(shapes, counts, strict=True)
    ]
    first, last = shapes[0].width, shapes[-1].width
    starts = list(accumulate(depths[:-1]))
    pools = {start: Pooling(shapes[start - 1].width, shapes[start].width) for start in starts}
    patches = Patches(first, PATCH // 2, 27 * 27)
    return Stack(patches, layers, VisionEnd(last, PIT_EPS), LinearHead(last, head.rows), pools)


class Pooling(nn.Module):
    """Every channel of the patches convolved into several at every other place; the class token mapped."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, 3, stride=2, padding=1, groups=before)
        self.token = nn.Linear(before, after)

    def forward(self, hidden: Tensor) -> Tensor:
        token, patches = hidden[:, :1], hidden[:, 1:].mT  # (b, 1, d), (b, d, patches)
        side = isqrt(patches.shape[-1])
        pooled = self.conv(patches.reshape(*patches.shape[:2], side, side)).flatten(2).mT
        return torch.cat([self.token(token), pooled], dim=1)
