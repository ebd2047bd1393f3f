"""The measures of a child, of its parent and of others of its size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import isfinite
from statistics import fmean
from typing import Any

from zerolm.io.plain import as_plain

Values = Mapping[str, float]


@dataclass(frozen=True)
class TextMeasures:
    """The measures of a network on a text by name, and those of each domain, if there are several.

    ``positions`` is the KL of decoders by span of positions in a window.
    """

    values: Values
    domains: Mapping[str, Values] = field(default_factory=dict)
    positions: Values = field(default_factory=dict)


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Measures:
    """The measures of a network on a text, None where they are not its own."""

    bits: float | None = None
    perplexity: float | None = None
    kl: float | None = None
    cosine: float | None = None
    distance: float | None = None
    order: float | None = None
    nearest: float | None = None
    loops: float | None = None
    pairs: float | None = None

    @property
    def values(self) -> dict[str, float]:
        """Return those that it has, by name."""
        named = ((item.name, getattr(self, item.name)) for item in fields(Measures))
        return {name: value for name, value in named if value is not None}


@dataclass(frozen=True)
class JudgedNetwork(Measures):
    """A network: its parameters, and its ``perplexity`` and ``kl``, or the measures of its embeddings.

    ``spread`` holds the smallest and the largest of several draws, of which the measures are the means.
    ``domains`` are measures by the domain of the text, where it has several. ``kl_by_position`` is the KL of
    predictions behind the ``first`` token of a window, behind those at ``1-15``, and behind the ``rest``.
    """

    name: str
    params: int
    spread: dict[str, tuple[float, float]] = field(default_factory=dict)
    domains: dict[str, dict[str, float]] = field(default_factory=dict)
    kl_by_position: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return _filled({"name": self.name, "params": self.params} | as_plain(self))


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


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Evaluated(Measures):
    """The losses of a child on a text and on tasks, compared with its parent and carvings of its size.

    ``networks``, the ``rows`` of the JSON, are empty without a text, ``tasks`` without tasks; ``note`` says
    what the carvings are. The measures of the child are at the top level, with ``parent_perplexity``.
    ``shortened`` says why sequences are shorter than asked; ``prompts`` were answered.
    """

    sequences: int | None = None
    tokens: int | None = None
    parent_perplexity: float | None = None
    networks: list[JudgedNetwork] = field(default_factory=list)
    note: str = ""
    shortened: str = ""
    prompts: int | None = None
    tasks: list[TaskRow] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return _filled(
            {
                "sequences": self.sequences,
                "tokens": self.tokens,
                **self.values,
                "parent_perplexity": self.parent_perplexity,
                "rows": [one.to_json() for one in self.networks],
                "note": self.note,
                "shortened": self.shortened,
                "prompts": self.prompts,
                "tasks": as_plain(self.tasks),
            }
        )


def _filled(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}


def judged_network(name: str, params: int, draws: Sequence[TextMeasures]) -> JudgedNetwork:
    """Return the mean of several draws, and how far they spread; ``ValueError`` where one is not finite."""
    columns = _columns(name, [draw.values for draw in draws])
    spread = {key: (min(column), max(column)) for key, column in columns.items()} if len(draws) > 1 else {}
    by_domain = {domain: [draw.domains[domain] for draw in draws] for domain in draws[0].domains}
    domains = {domain: _means(_columns(name, values)) for domain, values in by_domain.items()}
    positions = _means(_columns(name, [draw.positions for draw in draws]))
    return JudgedNetwork(name, params, spread, domains, positions, **_means(columns))


def _columns(name: str, draws: Sequence[Values]) -> dict[str, list[float]]:
    columns = {key: [draw[key] for draw in draws] for key in draws[0]}
    for key, column in columns.items():
        if not all(map(isfinite, column)):
            raise ValueError(f"what the {name} makes of the text is not finite: its {key} is {column[0]}")
    return columns


def _means(columns: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {key: fmean(column) for key, column in columns.items()}
