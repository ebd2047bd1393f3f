"""Architectures that a search or others chose, with scores and costs, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from zerolm.architecture import Architecture
from zerolm.io.brief import Brief, brief
from zerolm.io.plain import ReadBy
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


def _architecture(space: SearchSpace, choices: Any) -> Architecture:
    if not isinstance(choices, Mapping):
        raise ValueError("must be a JSON object")
    return space.read(choices)


@dataclass(frozen=True, repr=False)
class Choice:
    """An architecture with its score, its costs by name, and the expected result if there are labels."""

    architecture: Annotated[Architecture, ReadBy(_architecture)]
    score: float
    costs: dict[str, int]
    expected: Expected | None = None

    def __repr__(self) -> str:
        params = self.costs.get("params", 0)
        return brief(self, shape_text(self.architecture), f"score {self.score:.6g}, {params:,} parameters")


@dataclass(frozen=True, repr=False)
class BestLabel(Brief):
    """The labelled architecture with the best ``result`` of those within the budgets."""

    choice: Choice
    result: float


@dataclass(frozen=True, repr=False)
class Baseline(Brief):
    """The choice of another score within the same budgets; ``value`` is that score of it."""

    name: str
    value: float
    choice: Choice


@dataclass(frozen=True, repr=False)
class Reference(Brief):
    """The network that a search was to better, by its ``name``; ``exclusions`` are what keeps it out.

    There are none where it is an architecture of the space.
    """

    name: str
    choice: Choice
    exclusions: list[str]
