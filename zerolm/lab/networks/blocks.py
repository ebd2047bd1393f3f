"""Networks of the space ``blocks``: llamas whose layers share projections and have several FFNs."""

from __future__ import annotations

from torch import nn

from zerolm.architecture import Architecture
from zerolm.lab.spaces.blocks import SHARES
from zerolm.networks.modules.layer import ResidualLayer, Stack
from zerolm.networks.modules.llama import GroupedAttention, ffns, pre_norm, stack
from zerolm.spaces.choices import by_layer


def blocks(architecture: Architecture) -> Stack:
    """As llama, of layers that store fewer projections, and any number of FFNs one after the other."""
    size, depth = int(architecture.choices["head_size"]), architecture.depth
    layers = []
    for layer, share in zip(architecture.layers, by_layer(architecture.choices["share"], depth), strict=True):
        attention = GroupedAttention(
            layer.width, layer.query_width, layer.kv_width, size, uses=SHARES[str(share)]
        )
        layers.append(ResidualLayer(pre_norm(layer.width, attention), nn.Sequential(*ffns(layer))))
    return stack(architecture, layers)
