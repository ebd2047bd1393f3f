"""The measures of a child, of its parent and of others of its size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean
from typing import Any

Values = Mapping[str, float]


@dataclass(frozen=True)
class TextMeasures:
    """The measures of a network on a text by name, and those of each domain, if there are several.

    ``positions`` is the KL of decoders by span of positions in a window.
    """

    values: Values
    domains: Mapping[str, Values] = field(default_factory=dict)
    positions: Values = field(default_factory=dict)


@dataclass(frozen=True)
class EvaluatedRow:
    """A network: its parameters and its ``perplexity`` and ``kl``, or the measures of its embeddings.

    ``spread`` holds the smallest and the largest of several draws, of which ``values`` are the means, and so
    are those of ``domains``, by their names, and ``positions``, the KL by span of positions in a window.
    """

    name: str
    params: int
    values: dict[str, float]
    spread: dict[str, tuple[float, float]] = field(default_factory=dict)
    domains: dict[str, dict[str, float]] = field(default_factory=dict)
    positions: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        more: dict[str, Any] = {"spread": self.spread} if self.spread else {}
        more |= {"domains": self.domains} if self.domains else {}
        more |= {"kl_by_position": self.positions} if self.positions else {}
        return {"name": self.name, "params": self.params, **self.values, **more}


@dataclass(frozen=True)
class Evaluated:
    """``rows``: the child, the parent, carvings of the child's size; ``note`` says what these are.

    ``shortened`` says why sequences are shorter than they were to be; it is empty where they are not.
    ``prompts`` were answered.
    """

    rows: tuple[EvaluatedRow, ...]
    sequences: int
    tokens: int
    note: str
    shortened: str = ""
    prompts: int = 0

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
            **({"prompts": self.prompts} if self.prompts else {}),
        }


@dataclass(frozen=True)
class TaskRow:
    """A metric of a task on both networks, with its standard errors where the harness has any."""

    task: str
    metric: str
    samples: int
    child: float
    child_stderr: float | None
    parent: float
    parent_stderr: float | None


def evaluated_row(name: str, params: int, draws: Sequence[TextMeasures]) -> EvaluatedRow:
    """Return the mean of several draws, and how far they spread; ``ValueError`` where one is not finite."""
    columns = _columns(name, [draw.values for draw in draws])
    spread = {key: (min(column), max(column)) for key, column in columns.items()} if len(draws) > 1 else {}
    by_domain = {domain: [draw.domains[domain] for draw in draws] for domain in draws[0].domains}
    domains = {domain: _means(_columns(name, values)) for domain, values in by_domain.items()}
    positions = _means(_columns(name, [draw.positions for draw in draws]))
    return EvaluatedRow(name, params, _means(columns), spread, domains, positions)


def _columns(name: str, draws: Sequence[Values]) -> dict[str, list[float]]:
    columns = {key: [draw[key] for draw in draws] for key in draws[0]}
    for key, column in columns.items():
        if not all(map(isfinite, column)):
            raise ValueError(f"what the {name} makes of the text is not finite: its {key} is {column[0]}")
    return columns


def _means(columns: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {key: fmean(column) for key, column in columns.items()}
