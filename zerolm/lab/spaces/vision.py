"""The layer of vision transformers, and patches of images of 224 x 224."""

from __future__ import annotations

from typing import Final

from zerolm.architecture import Layer, Matrix
from zerolm.spaces.choices import integer

PATCH: Final = 3 * 16 * 16
"""Numbers in a patch: 16 x 16 pixels of three colours."""


def ffn_width(ratio: float, hidden: int) -> int:
    """Return ``int(ratio x hidden)``, as AutoFormer and timm have it."""
    return integer("the FFN width", int(ratio * hidden))


def vision_layer(d: int, w: int, f: int, extra: int = 0) -> Layer:
    """Return fused QKV and output projection of ``w`` wide attention, two FFN matrices, two layer norms.

    Biases everywhere; ``extra`` counts what else the layer stores. None of these is a body parameter:
    those of vision transformers are the matrices alone.
    """
    matrices = (
        Matrix("attention", 3 * w, d, parts=3, name="qkv"),
        Matrix("attention", d, w, name="o"),
        Matrix("ffn", f, d, name="up"),
        Matrix("ffn", d, f, name="down"),
    )
    return Layer(matrices, d, w, w, vectors=3 * w + d + f + d + 4 * d + extra)
