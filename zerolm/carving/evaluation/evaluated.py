"""The measures of a child, of its parent and of others of its size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np


@dataclass(frozen=True)
class EvaluatedRow:
    """A network: its parameters and its ``perplexity`` and ``kl``, or what its embeddings are worth.

    ``spread`` holds the smallest and the largest of several draws, of which ``values`` are the means.
    """

    name: str
    params: int
    values: dict[str, float]
    spread: dict[str, tuple[float, float]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        more = {"spread": self.spread} if self.spread else {}
        return {"name": self.name, "params": self.params, **self.values, **more}


@dataclass(frozen=True)
class Evaluated:
    """``rows``: the child, the parent, carvings of the child's size; ``note`` says what these are.

    ``shortened`` says why sequences are shorter than they were to be; it is empty where they are not.
    """

    rows: tuple[EvaluatedRow, ...]
    sequences: int
    tokens: int
    note: str
    shortened: str = ""

    def to_json(self) -> dict[str, Any]:
        child, parent = (row.values for row in self.rows[:2])
        of_parent = {"parent_perplexity": parent["perplexity"]} if "perplexity" in parent else {}
        shortened = {"shortened": self.shortened} if self.shortened else {}
        return {
            "sequences": self.sequences,
            "tokens": self.tokens,
            **child,
            **of_parent,
            "rows": [row.to_json() for row in self.rows],
            "note": self.note,
            **shortened,
        }


def evaluated_row(name: str, params: int, draws: Sequence[Mapping[str, float]]) -> EvaluatedRow:
    """Return the mean of several draws, and how far they spread; ``ValueError`` where one is not finite."""
    columns = {key: [draw[key] for draw in draws] for key in draws[0]}
    for key, column in columns.items():
        if not np.isfinite(column).all():
            raise ValueError(f"what the {name} makes of the text is not finite: its {key} is {column[0]}")
    spread = {key: (min(column), max(column)) for key, column in columns.items()} if len(draws) > 1 else {}
    return EvaluatedRow(name, params, {key: fmean(column) for key, column in columns.items()}, spread)
