"""The parts that vision transformers share: patches of images of 224 x 224, and their layer."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from zerolm import architecture as shapes
from zerolm.networks.batch import IMAGE
from zerolm.networks.modules.layer import FeedForward, PreNorm, ResidualLayer, ffn_widths

PATCH: Final = 16


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


def vision_layer(layer: shapes.Layer, attention: nn.Module, eps: float) -> ResidualLayer:
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
