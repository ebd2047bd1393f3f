"""PiT (arXiv 2103.16302): a vision transformer in stages, with fewer and wider tokens in each."""

from __future__ import annotations

from itertools import accumulate
from math import isqrt
from typing import Final

import torch
from torch import Tensor, nn

from zerolm.architecture import Architecture
from zerolm.lab.networks.vision import PATCH, Patches, VisionEnd, vision_layer
from zerolm.networks.modules.attention import FusedAttention
from zerolm.networks.modules.embeddings import LinearHead
from zerolm.networks.modules.layer import Stack

EPS: Final = 1e-6


def pit(architecture: Architecture) -> Stack:
    """Depth and heads of its own in every stage; the head reads the class token."""
    depths, heads = architecture.choices["depth"], architecture.choices["num_heads"]
    (head,), shapes = architecture.ends.head_matrices, architecture.layers
    counts = [count for count, depth in zip(heads, depths, strict=True) for _ in range(depth)]
    layers = [
        vision_layer(shape, FusedAttention(shape.width, shape.width, count, dropout=0.0), EPS)
        for shape, count in zip(shapes, counts, strict=True)
    ]
    first, last = shapes[0].width, shapes[-1].width
    starts = list(accumulate(depths[:-1]))
    pools = {start: Pooling(shapes[start - 1].width, shapes[start].width) for start in starts}
    patches = Patches(first, PATCH // 2, 27 * 27)
    return Stack(patches, layers, VisionEnd(last, EPS), LinearHead(last, head.rows), pools)


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
