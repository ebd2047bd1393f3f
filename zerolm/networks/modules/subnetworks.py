"""Sub-networks of a trained parent as plain modules: heads and FFN widths of their own in every layer."""

from __future__ import annotations

from typing import Final

from zerolm.architecture import Architecture
from zerolm.networks.modules import bert, llama
from zerolm.networks.modules.layer import Stack
from zerolm.spaces.subnetworks import heads_of

GATED: Final = {"q", "k", "v", "o", "gate", "up", "down"}
PLAIN: Final = {"q", "k", "v", "o", "up", "down"}


def decoder(architecture: Architecture) -> Stack:
    """As the llama of these sizes; ``ValueError`` where the parent's layers are not a llama's."""
    _, size = heads_of(architecture)
    for layer in architecture.layers:
        more = layer.vectors - 2 * layer.width
        is_known = more in (0, layer.query_width + 2 * layer.kv_width, 2 * size)
        _check(architecture, is_known and {matrix.name for matrix in layer.matrices} == GATED)
    return llama.gated(architecture, size)


def encoder(architecture: Architecture) -> Stack:
    """As the BERT of these sizes; ``ValueError`` where the parent's layers are not a BERT's."""
    heads, _ = heads_of(architecture)
    for layer in architecture.layers:
        widths = {matrix.name: matrix.rows for matrix in layer.matrices}
        of_ffn = widths.get("up", 0)
        biases = 3 * layer.query_width + of_ffn + 2 * layer.width
        is_known = set(widths) == PLAIN and layer.vectors == biases + 4 * layer.width
        _check(architecture, is_known and architecture.ends.tied_head > 0)
    return bert.encoder(architecture, heads)


def _check(architecture: Architecture, is_known: bool) -> None:
    if not is_known:
        raise ValueError(
            f"networks of {architecture.space!r} are built of parents like llama, qwen2, qwen3 and bert; "
            "this one is of another family"
        )
