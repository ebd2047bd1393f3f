"""The one result type of every search method."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from zerolm.architecture import Architecture
from zerolm.solvers.method import Count
from zerolm.spaces import SearchSpace


@dataclass(frozen=True, slots=True)
class Expected:
    """What a calibration expects of an architecture when it is trained, in the unit of its metric.

    ``low`` to ``high`` holds nine of ten results of architectures drawn as the labels were;
    ``extrapolated`` where the depth, width, size or a choice lies beyond all labels.
    """

    mean: float
    low: float
    high: float
    extrapolated: bool


@dataclass(frozen=True)
class Choice:
    """An architecture with its score, its costs by name, and what is expected of it if labels tell."""

    architecture: Architecture
    score: float
    costs: dict[str, int]
    expected: Expected | None = None

    def to_json(self) -> dict[str, Any]:
        found = {"architecture": self.architecture.choices, "score": self.score, "costs": self.costs}
        return {**found, "expected": asdict(self.expected)} if self.expected else found


@dataclass(frozen=True)
class Certificate:
    """What is proven of ``best[0]``: no architecture within the budgets scores more than (1 + gap) x it.

    ``gap`` is relative and None where nothing is proven; ``counts`` says whether ``ties`` and
    ``near_ties`` are ``exact`` or ``at least`` so many.
    """

    method: str
    optimal: bool
    gap: float | None
    seconds: float
    counts: str

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "optimal": self.optimal,
            "gap": self.gap,
            "seconds": round(self.seconds, 3),
            "counts": self.counts,
        }


@dataclass(frozen=True)
class Baseline:
    """What another score chooses within the same budgets: ``value`` is its own score of that choice."""

    name: str
    value: float
    choice: Choice

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, **self.choice.to_json()}


@dataclass(frozen=True)
class Binding:
    """A bound that costs score: 10 % wider (``relaxed_to``), it allows ``score``; ``gain`` is relative."""

    bound: str
    kind: str
    at: float
    relaxed_to: float
    score: float
    gain: float

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True, slots=True)
class Peak:
    """The best score within the budgets at one depth and mean width."""

    depth: int
    width: float
    score: float


@dataclass(frozen=True)
class SearchResult:
    """The best architectures of a space within budgets, and how far that is proven.

    ``best`` holds shapes that are distinct and no permutations of each other, best first; ``ties`` and
    ``near_ties`` count the architectures of the space that score as much as ``best[0]`` or within 1 % of
    it; ``pick`` is the near-tie with the smallest KV cache, then the fewest MACs. ``front`` is the Pareto
    front of score against ``front_cost``, or some points of it where ``front_complete`` is false;
    ``landscape`` holds the best score at each depth and width (then: an upper bound of it).
    ``calibration`` says, in plain JSON, which labels the score was fitted to, if any;
    ``bounds_tested`` whether ``binding`` is what was found, or nothing was asked.
    """

    space: SearchSpace
    score: str
    options: dict[str, Any]
    budgets: dict[str, int]
    conditions: dict[str, int]
    certificate: Certificate
    pick: Choice
    best: list[Choice]
    front: list[Choice]
    front_cost: str
    front_complete: bool
    ties: Count
    near_ties: Count
    landscape: list[Peak] = field(default_factory=list)
    baselines: list[Baseline] = field(default_factory=list)
    binding: list[Binding] = field(default_factory=list)
    calibration: dict[str, Any] | None = None
    bounds_tested: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, as ``zerolm search --json`` prints it."""
        return {
            "space": self.space.name,
            "settings": self.space.settings,
            "score": self.score,
            "options": self.options,
            "budgets": self.budgets,
            "conditions": self.conditions,
            "certificate": self.certificate.to_json(),
            "pick": self.pick.to_json(),
            "best": [choice.to_json() for choice in self.best],
            "front_cost": self.front_cost,
            "front_complete": self.front_complete,
            "front": [choice.to_json() for choice in self.front],
            "ties": self.ties.value,
            "near_ties": self.near_ties.value,
            "landscape": [[peak.depth, peak.width, peak.score] for peak in self.landscape],
            "baselines": [baseline.to_json() for baseline in self.baselines],
            "binding": [binding.to_json() for binding in self.binding],
            "calibration": self.calibration,
        }
