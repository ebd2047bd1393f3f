"""The one type of result of all search methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from zerolm.architecture import Architecture
from zerolm.cost_columns import FURTHER, shown_costs
from zerolm.costs import COSTS
from zerolm.io.brief import Brief, brief
from zerolm.io.plain import ReadBy, checked
from zerolm.pretraining import TrainingPlan
from zerolm.solvers.engine import Count
from zerolm.spaces import SearchSpace, make_space, shape_text


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


@dataclass(frozen=True)
class Certificate:
    """The proof that no architecture within the budgets scores more than (1 + gap) x ``best[0]``.

    ``gap`` is relative and None where nothing is proven; ``counts`` is ``exact`` or ``at least``, for
    ``ties`` and ``near_ties``. ``seconds`` are whole milliseconds, so that a result that was written and read
    again is the same.
    """

    method: str
    optimal: bool
    gap: float | None
    seconds: float
    counts: str


@dataclass(frozen=True)
class Binding:
    """A bound that costs score: relaxed, it allows ``score``; ``gain`` is relative, None where the best is 0.

    ``relaxed_to`` is 10 % wider for a ``kind`` budget or shape; a range is opened whole, and ``at`` and
    ``relaxed_to`` are its ends in words. ``words`` is the best architecture then.
    """

    bound: str
    kind: str
    at: int | float | str
    relaxed_to: int | float | str
    score: float
    gain: float | None
    words: str = ""

    @property
    def better(self) -> str:
        return f"{self.score:.6g} instead of 0" if self.gain is None else f"{100 * self.gain:+.2f} %"


@dataclass(frozen=True, slots=True)
class Peak:
    """The best score within the budgets at one depth and mean width."""

    depth: int
    width: int | float
    score: float


@dataclass(frozen=True, repr=False)
class LatencyTable(Brief):
    """The latencies that a search went by, as one machine took them, in whole microseconds.

    A forward pass of ``batch`` sequences of ``tokens`` on ``threads`` threads, the fastest of ``rounds``: of
    the ``ends`` outside the layers, of the ``layers``, each by its choice, and of the pick as a ``whole``.
    """

    batch: int
    tokens: int
    threads: int
    rounds: int
    ends: int
    layers: list[dict[str, Any]]
    whole: int | None = None


@dataclass(frozen=True)
class VocabularyChoice:
    """The best architecture within the budgets for one size of the vocabulary; empty where there is none.

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


@dataclass(frozen=True)
class NamedSpace:
    """A search space by its name and its settings, as JSON has it."""

    name: str
    settings: dict[str, Any]


@dataclass(frozen=True, repr=False)
class Question(Brief):
    """The space, score with its options, budgets, and conditions of running that a search was asked for.

    ``latency`` is the table of latencies that it goes by, None where none are asked for. ``baseline`` is the
    network that it was to better, if one was named; ``vocabularies`` are those that it chose from, where they
    were listed: space, budgets and conditions are then of the chosen one. ``training`` is the planned
    training length, if known.
    """

    space: Annotated[SearchSpace, ReadBy(lambda space, _: space)]
    score: str
    options: dict[str, Any]
    budgets: dict[str, int]
    conditions: dict[str, Any]
    latency: LatencyTable | None = None
    baseline: Reference | None = None
    vocabularies: tuple[VocabularyChoice, ...] = ()
    training: TrainingPlan | None = None


@dataclass(frozen=True, repr=False)
class ParetoFront(Brief):
    """The best score at each ``cost``, cheapest first: all ``points``, or where not ``complete`` some."""

    cost: str
    points: list[Choice]
    complete: bool


@dataclass(frozen=True, repr=False)
class Plateau(Brief):
    """How flat the optimum is.

    ``ties`` and ``near_ties`` count the architectures of the space that score as much as the best or within
    1 % of it; ``landscape`` holds the best score at each depth and width, or an upper bound of it where the
    front is not complete.
    """

    ties: Count
    near_ties: Count
    landscape: list[Peak] = field(default_factory=list)


@dataclass(frozen=True, repr=False)
class BoundsTest(Brief):
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
        """Return the names of the costs that every choice has, and tables show."""
        names = (*COSTS, *(name for name in FURTHER if name in self.pick.costs))
        return shown_costs(names, (choice.costs for choice in (self.pick, *self.best)))

    @property
    def space(self) -> SearchSpace:
        return self.question.space

    @property
    def baseline(self) -> Reference | None:
        return self.question.baseline

    @property
    def vocabularies(self) -> tuple[VocabularyChoice, ...]:
        return self.question.vocabularies

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the result of a document of ``to_json``; ``ValueError`` names the field that is wrong."""
        question = checked(dict[str, Any], document.get("question"), "question")
        space = checked(NamedSpace, question.get("space"), "question.space")
        return checked(cls, document, context=make_space(space.name, **space.settings))
