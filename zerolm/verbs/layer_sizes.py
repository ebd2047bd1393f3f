"""Architectures as sizes of layers, which strips draw."""

from __future__ import annotations

from typing import Any, Final

from zerolm.architecture import Architecture, Layer
from zerolm.show.charts import LayerSizes
from zerolm.spaces import SPACES
from zerolm.spaces.subnetworks import heads_of

HEAD_CHOICES: Final = ("heads", "n_head", "num_heads", "num_operation_heads")
"""What spaces call the number of heads."""


def layer_sizes(architecture: Architecture) -> list[LayerSizes]:
    """Return the sizes of each layer."""
    heads = head_counts(architecture)
    return [
        LayerSizes(layer.width, layer.query_width, layer.kv_width, count, _ffn(layer))
        for layer, count in zip(architecture.layers, heads, strict=True)
    ]


def _ffn(layer: Layer) -> int:
    inner = (m.rows if m.cols == layer.width else m.cols for m in layer.matrices if m.role == "ffn")
    return max(inner, default=0)


def head_counts(architecture: Architecture) -> list[int]:
    """Return the heads of each layer from the choices; 0 where they lack them."""
    if architecture.space in SPACES and SPACES[architecture.space].is_of_one_parent:
        return heads_of(architecture)[0]
    choices, depth = architecture.choices, architecture.depth
    layers = choices.get("encoder_layers", choices.get("layers"))
    layers = layers if isinstance(layers, list) and len(layers) == depth else [choices] * depth
    counts = []
    for place, layer in enumerate(layers):
        heads: Any = next((layer[name] for name in HEAD_CHOICES if name in layer), 0)
        if isinstance(heads, list):
            stages = choices.get("depth")
            if len(heads) != depth and isinstance(stages, list) and len(stages) == len(heads):
                heads = [count for count, repeat in zip(heads, stages, strict=True) for _ in range(repeat)]
            heads = heads[place] if len(heads) == depth else 0
        queries = architecture.layers[place].query_width
        counts.append(heads if isinstance(heads, int) and heads and queries % heads == 0 else 0)
    return counts
