"""Settings of costs that several commands take: budgets, and how the network is run."""

from __future__ import annotations

from typing import Final

from zerolm.settings import Setting
from zerolm.settings.kinds import KindName

CONDITIONS: Final = (
    Setting("context", "integer", 1024, "tokens attended to", low=1, high=1 << 24),
    Setting("batch", "integer", 1, "sequences at once", low=1, high=1 << 10),
    Setting("kv_bits", "integer", 16, "bits of a cached number", low=1, high=32),
    Setting("bits", "integer", 16, "bits of a weight of body and head", low=1, high=32),
    Setting("group_size", "integer", 128, "weights that share a scale", low=1, high=1 << 20),
)
"""How a network is run."""
COSTS: Final = {
    "params": "parameters",
    "body_params": "parameters without embeddings and head",
    "macs": "multiply-accumulates of one token",
    "kv_bytes": "bytes of the KV cache",
    "weight_bytes": "bytes of the weights",
}


def budgets(side: str, word: str, kind: KindName = "integer") -> tuple[Setting, ...]:
    """Return a budget of each cost: ``max_`` of it at most, or ``min_`` at least."""
    return tuple(
        Setting(f"{side}_{cost}", kind, None, f"{text} at {word}", low=0, metavar="AMOUNT")
        for cost, text in COSTS.items()
    )
