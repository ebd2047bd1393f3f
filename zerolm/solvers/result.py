"""The one type of result of all search methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from zerolm.architecture import Architecture
from zerolm.costs import COSTS, LATENCY
from zerolm.solvers.engine import Count
from zerolm.spaces import SearchSpace, make_space


@dataclass(frozen=True, slots=True)
class Expected:
    """The result that a calibration expects of an architecture when it is trained, in its metric's unit.

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
        document = {"architecture": self.architecture.choices, "score": self.score, "costs": self.costs}
        return {**document, "expected": asdict(self.expected)} if self.expected else document

    @classmethod
    def from_json(cls, space: SearchSpace, document: dict[str, Any]) -> Choice:
        expected = document.get("expected")
        return cls(
            space.read(document["architecture"]),
            document["score"],
            document["costs"],
            Expected(**expected) if expected else None,
        )


@dataclass(frozen=True)
class BestLabel:
    """The labelled architecture with the best ``result`` of those within the budgets."""

    choice: Choice
    result: float

    def to_json(self) -> dict[str, Any]:
        return {**self.choice.to_json(), "result": self.result}


@dataclass(frozen=True)
class Certificate:
    """The proof that no architecture within the budgets scores more than (1 + gap) x ``best[0]``.

    ``gap`` is relative and None where nothing is proven; ``counts`` says whether ``ties`` and
    ``near_ties`` are ``exact`` or ``at least`` so many. ``seconds`` are whole milliseconds, so that a
    result that was written and read again tells the same.
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
            "seconds": self.seconds,
            "counts": self.counts,
        }


@dataclass(frozen=True)
class Baseline:
    """The choice of another score within the same budgets; ``value`` is that score of it."""

    name: str
    value: float
    choice: Choice

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, **self.choice.to_json()}


@dataclass(frozen=True)
class Reference:
    """The network that a search was to better, by its ``name``; ``exclusions`` are what keeps it out.

    There are none where it is an architecture of the space.
    """

    name: str
    choice: Choice
    exclusions: list[str]

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "exclusions": self.exclusions, **self.choice.to_json()}


@dataclass(frozen=True)
class Binding:
    """A bound that costs score: relaxed, it allows ``score``; ``gain`` is relative, None where the best is 0.

    ``relaxed_to`` is 10 % wider for a ``kind`` budget or shape; a range is opened whole, and ``at`` and
    ``relaxed_to`` are its ends in words. ``words`` is the best architecture then.
    """

    bound: str
    kind: str
    at: float | str
    relaxed_to: float | str
    score: float
    gain: float | None
    words: str = ""

    @property
    def better(self) -> str:
        """Return the gain in words."""
        return f"{self.score:.6g} instead of 0" if self.gain is None else f"{100 * self.gain:+.2f} %"

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True, slots=True)
class Peak:
    """The best score within the budgets at one depth and mean width."""

    depth: int
    width: float
    score: float


@dataclass(frozen=True)
class LatencyTable:
    """The latencies that a search went by, as one machine took them, in whole microseconds.

    A forward pass of ``batch`` sequences of ``tokens`` on so many ``threads``, the fastest of ``rounds``: of
    the ``ends`` outside the layers, of the ``layers``, each by its choice, and of the pick as a ``whole``.
    """

    batch: int
    tokens: int
    threads: int
    rounds: int
    ends: int
    layers: list[dict[str, Any]]
    whole: int | None = None

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class VocabularyChoice:
    """The best within the budgets with a vocabulary of so many ids: nothing where nothing keeps them.

    ``bytes_per_token`` is that of the user's text, ``context`` and ``budgets`` are for as much of it as those
    of the smallest vocabulary; ``score``, ``costs`` and ``shape`` are the best architecture's.
    """

    vocab: int
    bytes_per_token: float
    context: int
    budgets: dict[str, int]
    score: float | None = None
    costs: dict[str, int] | None = None
    shape: str = ""

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Question:
    """The space, score with its options, budgets, and conditions of running that a search was asked for.

    ``latency`` is the table of latencies that it goes by, None where none are asked for.
    ``baseline`` is the network that it was to better, if one was named; ``vocabularies`` are those that it
    chose from, where they were listed: space, budgets and conditions are then of the chosen one.
    """

    space: SearchSpace
    score: str
    options: dict[str, Any]
    budgets: dict[str, int]
    conditions: dict[str, int]
    latency: LatencyTable | None = None
    baseline: Reference | None = None
    vocabularies: tuple[VocabularyChoice, ...] = ()


@dataclass(frozen=True)
class ParetoFront:
    """The best score at each ``cost``, cheapest first: all ``points``, or where not ``complete`` some."""

    cost: str
    points: list[Choice]
    complete: bool


@dataclass(frozen=True)
class Plateau:
    """How flat the optimum is.

    ``ties`` and ``near_ties`` count the architectures of the space that score as much as the best or within
    1 % of it; ``landscape`` holds the best score at each depth and width, or an upper bound of it where the
    front is not complete.
    """

    ties: Count
    near_ties: Count
    landscape: list[Peak] = field(default_factory=list)


@dataclass(frozen=True)
class BoundsTest:
    """The bounds that cost score; where not ``tested``, nothing is known of them.

    ``free`` names those that were relaxed and cost nothing.
    """

    tested: bool = False
    binding: list[Binding] = field(default_factory=list)
    free: list[str] = field(default_factory=list)


@dataclass(frozen=True, repr=False)
class SearchResult:
    """The best architectures of a space within budgets, and how far that is proven.

    ``best`` holds shapes that are distinct and no permutations of each other (distinct architectures where
    the score sees choices), best first; ``pick`` is the architecture within 1 % of the best score with the
    smallest KV cache, then the fewest MACs; the best itself where the score is measured.
    ``calibration`` says, in plain JSON, which labels the score was fitted to, if any, and ``best_label``
    what the best of these within the budgets reached. Where the search was asked to better a ``baseline``,
    the pick is at least as good by the score, if anything within the budgets is.
    """

    question: Question
    certificate: Certificate
    pick: Choice
    best: list[Choice]
    front: ParetoFront
    plateau: Plateau
    baselines: list[Baseline] = field(default_factory=list)
    bounds: BoundsTest = field(default_factory=BoundsTest)
    calibration: dict[str, Any] | None = None
    best_label: BestLabel | None = None

    @property
    def latency(self) -> LatencyTable | None:
        return self.question.latency

    @property
    def cost_names(self) -> tuple[str, ...]:
        """Return the names of the costs that every choice has."""
        return (*COSTS, LATENCY) if self.latency else COSTS

    @property
    def space(self) -> SearchSpace:
        return self.question.space

    @property
    def baseline(self) -> Reference | None:
        return self.question.baseline

    @property
    def vocabularies(self) -> tuple[VocabularyChoice, ...]:
        return self.question.vocabularies

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, as ``zerolm search --json`` prints it."""
        question, plateau = self.question, self.plateau
        latency = {"latency": self.latency.to_json()} if self.latency else {}
        return {
            "space": question.space.name,
            "settings": question.space.settings,
            "score": question.score,
            "options": question.options,
            "budgets": question.budgets,
            "conditions": question.conditions,
            "certificate": self.certificate.to_json(),
            "pick": self.pick.to_json(),
            "best": [choice.to_json() for choice in self.best],
            "front_cost": self.front.cost,
            "front_complete": self.front.complete,
            "front": [choice.to_json() for choice in self.front.points],
            "ties": plateau.ties.value,
            "near_ties": plateau.near_ties.value,
            "landscape": [[peak.depth, peak.width, peak.score] for peak in plateau.landscape],
            "baselines": [baseline.to_json() for baseline in self.baselines],
            "bounds_tested": self.bounds.tested,
            "binding": [binding.to_json() for binding in self.bounds.binding],
            "free": self.bounds.free,
            "unused": question.space.unused(),
            "calibration": self.calibration,
            "best_label": self.best_label.to_json() if self.best_label else None,
            **latency,
            "baseline": self.baseline.to_json() if self.baseline else None,
            "vocabularies": [one.to_json() for one in question.vocabularies],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the result that ``to_json`` told."""
        space = make_space(document["space"], **document["settings"])
        exact = document["certificate"]["counts"] == "exact"

        def choice(told: dict[str, Any]) -> Choice:
            return Choice.from_json(space, told)

        label, latency, told = document["best_label"], document.get("latency"), document.get("baseline")
        asked = {name: document[name] for name in ("score", "options", "budgets", "conditions")}
        asked["latency"] = LatencyTable(**latency) if latency else None
        asked["vocabularies"] = tuple(VocabularyChoice(**one) for one in document.get("vocabularies", ()))
        asked["baseline"] = Reference(told["name"], choice(told), told["exclusions"]) if told else None
        return cls(
            question=Question(space, **asked),
            certificate=Certificate(**document["certificate"]),
            pick=choice(document["pick"]),
            best=[choice(told) for told in document["best"]],
            front=ParetoFront(
                document["front_cost"], [choice(p) for p in document["front"]], document["front_complete"]
            ),
            plateau=Plateau(
                Count(document["ties"], exact),
                Count(document["near_ties"], exact),
                [Peak(*peak) for peak in document["landscape"]],
            ),
            baselines=[Baseline(told["name"], told["value"], choice(told)) for told in document["baselines"]],
            bounds=BoundsTest(
                document["bounds_tested"],
                [Binding(**told) for told in document["binding"]],
                document.get("free", []),
            ),
            calibration=document["calibration"],
            best_label=BestLabel(choice(label), label["result"]) if label else None,
        )
