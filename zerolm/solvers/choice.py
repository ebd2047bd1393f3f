"""Architectures that a search or others chose, with scores and costs, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self, get_type_hints

from zerolm.architecture import Architecture
from zerolm.io.brief import brief
from zerolm.io.plain import Fields
from zerolm.spaces import SearchSpace, shape_text


@dataclass(frozen=True, slots=True)
class Expected:
    """The result that a calibration expects of an architecture when it is trained, in its metric's unit.

    ``low`` to ``high`` holds nine of ten results of architectures sampled like the labels; ``extrapolated``
    where the depth, width, size or a choice lies beyond all labels.
    """

    mean: float
    low: float
    high: float
    extrapolated: bool

    def __str__(self) -> str:
        return f"{self.mean:.4g} (90 %: {self.interval})"

    @property
    def interval(self) -> str:
        """Return the ends of the interval, and whether it goes beyond the labels."""
        beyond = ", beyond all labels" if self.extrapolated else ""
        return f"{self.low:.4g} to {self.high:.4g}{beyond}"


@dataclass(frozen=True, repr=False)
class Choice:
    """An architecture with its score, its costs by name, and the expected result if there are labels."""

    architecture: Architecture
    score: float
    costs: dict[str, int]
    expected: Expected | None = None

    def __repr__(self) -> str:
        params = self.costs.get("params", 0)
        return brief(self, shape_text(self.architecture), f"score {self.score:.6g}, {params:,} parameters")

    def to_json(self) -> dict[str, Any]:
        document = {"architecture": self.architecture.choices, "score": self.score, "costs": self.costs}
        return {**document, "expected": asdict(self.expected)} if self.expected else document

    @classmethod
    def from_json(cls, document: Any, space: SearchSpace, place: str) -> Self:
        """Return the choice as its space reads it; ``place`` is its path in the whole document."""
        fields = Fields(document, place)
        choices = fields.read("architecture", dict[str, Any])
        try:
            architecture = space.read(choices)
        except ValueError as error:
            raise ValueError(f"{place}.architecture: {error}") from None
        score, costs = fields.read("score", float), fields.read("costs", dict[str, int])
        return cls(architecture, score, costs, fields.optional("expected", Expected))


class NotedChoice:
    """A choice with what is known of it beyond: JSON has their fields side by side."""

    choice: Choice

    def __repr__(self) -> str:
        return brief(self, *map(str, self._others.values()), repr(self.choice))

    @property
    def _others(self) -> Mapping[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "choice"}

    def to_json(self) -> dict[str, Any]:
        return {**self._others, **self.choice.to_json()}

    @classmethod
    def from_json(cls, document: Any, space: SearchSpace, place: str) -> Self:
        """Return it with its choice as the space reads that; ``place`` is its path in the whole document."""
        fields, kinds = Fields(document, place), get_type_hints(cls)
        values = {name: fields.read(name, kind) for name, kind in kinds.items() if name != "choice"}
        return cls(**values | {"choice": Choice.from_json(document, space, place)})

    @classmethod
    def optional(cls, fields: Fields, name: str, space: SearchSpace) -> Self | None:
        """Return it from a field of the whole document, None where that is missing or null."""
        document = fields.optional(name, dict[str, Any])
        return None if document is None else cls.from_json(document, space, name)


@dataclass(frozen=True, repr=False)
class BestLabel(NotedChoice):
    """The labelled architecture with the best ``result`` of those within the budgets."""

    choice: Choice
    result: float


@dataclass(frozen=True, repr=False)
class Baseline(NotedChoice):
    """The choice of another score within the same budgets; ``value`` is that score of it."""

    name: str
    value: float
    choice: Choice


@dataclass(frozen=True, repr=False)
class Reference(NotedChoice):
    """The network that a search was to better, by its ``name``; ``exclusions`` are what keeps it out.

    There are none where it is an architecture of the space.
    """

    name: str
    choice: Choice
    exclusions: list[str]
