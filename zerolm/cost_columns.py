"""The costs of a network by name, with the words that settings, tables and charts have for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class CostColumn:
    """The ``label`` of a cost in a sentence, its ``head`` in a table, and what a limit on it is of."""

    label: str
    head: str
    meaning: str


COLUMNS: Final = {
    "params": CostColumn("parameters", "params", "parameters"),
    "active_params": CostColumn("active parameters", "active", "parameters that one token uses"),
    "body_params": CostColumn("body parameters", "body", "parameters without embeddings and head"),
    "macs": CostColumn("MACs a token", "MACs", "multiply-accumulates of one token"),
    "kv_bytes": CostColumn("KV cache", "KV cache", "bytes of the KV cache"),
    "weight_bytes": CostColumn("weights", "weights", "bytes of the weights"),
}
"""Costs that every network has, in the order of all tables; those in bytes end so."""
LATENCY: Final = "latency_us"
TRAINING: Final = "train_bytes"
FURTHER: Final = {
    LATENCY: CostColumn("latency", "latency", "microseconds of a forward pass on this machine"),
    TRAINING: CostColumn("training memory", "training", "bytes of training on one device"),
}
"""Costs that a network has where it is asked for them."""


def shown_costs(names: Iterable[str], costs: Iterable[Mapping[str, int]]) -> tuple[str, ...]:
    """Return the names of costs that a table shows.

    Active parameters are left out where all are active, and a KV cache where no network keeps one.
    """
    rows = list(costs)
    is_dense = all(one["active_params"] == one["params"] for one in rows if "active_params" in one)
    has_cache = any(one.get("kv_bytes", 0) for one in rows)
    hidden = {"active_params": is_dense, "kv_bytes": not has_cache}
    return tuple(name for name in names if not hidden.get(name))


def column_of(cost: str) -> CostColumn:
    """Return the words of a cost; ``ValueError`` for one that there is not."""
    if cost in FURTHER:
        return FURTHER[cost]
    if cost not in COLUMNS:
        raise ValueError(f"there is no cost {cost!r:.80}; there are {', '.join(COLUMNS)}")
    return COLUMNS[cost]


def cost_label(cost: str) -> str:
    return column_of(cost).label
