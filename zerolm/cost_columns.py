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
    """Return the names of costs that a table shows: without active parameters where all are active."""
    dense = all(one["active_params"] == one["params"] for one in costs if "active_params" in one)
    return tuple(name for name in names if name != "active_params" or not dense)


def column_of(cost: str) -> CostColumn:
    """Return the words of a cost; ``ValueError`` for one that there is not."""
    if cost in FURTHER:
        return FURTHER[cost]
    if cost not in COLUMNS:
        raise ValueError(f"there is no cost {cost!r:.80}; there are {', '.join(COLUMNS)}")
    return COLUMNS[cost]


def cost_label(cost: str) -> str:
    return column_of(cost).label
