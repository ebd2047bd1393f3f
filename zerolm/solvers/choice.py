"""Architectures that a search or others chose, with scores and costs, and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from zerolm.architecture import Architecture
from zerolm.io.brief import brief
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


@dataclass(frozen=True, repr=False)
class BestLabel:
    """The labelled architecture with the best ``result`` of those within the budgets."""

    choice: Choice
    result: float

    def __repr__(self) -> str:
        return brief(self, f"result {self.result:.6g}", repr(self.choice))

    def to_json(self) -> dict[str, Any]:
        return {**self.choice.to_json(), "result": self.result}


@dataclass(frozen=True, repr=False)
class Baseline:
    """The choice of another score within the same budgets; ``value`` is that score of it."""

    name: str
    value: float
    choice: Choice

    def __repr__(self) -> str:
        return brief(self, f"{self.name} {self.value:.6g}", repr(self.choice))

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, **self.choice.to_json()}


@dataclass(frozen=True, repr=False)
class Reference:
    """The network that a search was to better, by its ``name``; ``exclusions`` are what keeps it out.

    There are none where it is an architecture of the space.
    """

    name: str
    choice: Choice
    exclusions: list[str]

    def __repr__(self) -> str:
        return brief(self, self.name, repr(self.choice), f"{len(self.exclusions)} exclusions")

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "exclusions": self.exclusions, **self.choice.to_json()}


@dataclass(frozen=True, kw_only=True)
class ChoiceDocument:
    """A choice as JSON."""

    architecture: dict[str, Any]
    score: float
    costs: dict[str, int]
    expected: Expected | None = None

    def choice(self, space: SearchSpace, place: str) -> Choice:
        """Return the choice as its space reads it; ``place`` is its path in the document."""
        try:
            architecture = space.read(self.architecture)
        except ValueError as error:
            raise ValueError(f"{place}.architecture: {error}") from None
        return Choice(architecture, self.score, self.costs, self.expected)


@dataclass(frozen=True, kw_only=True)
class LabelDocument(ChoiceDocument):
    """The best label as JSON."""

    result: float


@dataclass(frozen=True, kw_only=True)
class BaselineDocument(ChoiceDocument):
    """The choice of a baseline as JSON."""

    name: str
    value: float


@dataclass(frozen=True, kw_only=True)
class ReferenceDocument(ChoiceDocument):
    """The network to better as JSON."""

    name: str
    exclusions: list[str]
