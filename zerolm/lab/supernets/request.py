"""Requests of supernets, whose fields declare the settings of ``zerolm lab elastic``, and their outcomes.

Outcomes are plain numbers and names; nothing here needs torch.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from zerolm.settings.compute import TrainedOn
from zerolm.settings.request import part, setting
from zerolm.training.request import Execution, Schedule, TrainingRequest, check_one_batch

Kind = Literal["relational", "classical"]
ETA: Final = {"bert": 0.99, "mobile": 0.9, "llama": 0.99}
"""The share of the variance that counts as rich, by block."""
SUPERNET_LOSS: Final = "supernet"
"""The score of a path that is its loss in the supernet."""
UNTRAINED: Final = "as exported"
Row = dict[str, int | float]
"""Of a log: ``step``, ``tokens``, losses by name, measures."""


@dataclass(frozen=True)
class Growth:
    """How FFN widths grow; principal components are counted on every ``every``-th step.

    Nothing grows after the last epoch: what would grow then is never trained.
    """

    epochs: int = setting("integer", 10, "epochs; widths grow after each", low=1, high=1000)
    growth: int = setting(
        "integer", 3, "mean growth steps of a width; 0 keeps widths fixed", low=0, high=1000
    )
    mean_params: int | None = setting(
        "integer", None, "stop growing when paths exceed this mean parameter count", low=1, high=1 << 50
    )
    eta: float | None = setting(
        "number", None, "variance share that counts as rich; default .99, for mobile blocks .9",
        low=0, high=0.9999,
    )  # fmt: skip
    every: int = 30

    def rich(self, block: str) -> float:
        """Return the share of the variance that counts as rich in a block."""
        return ETA[block] if self.eta is None else self.eta


@dataclass(frozen=True)
class Teaching:
    """A teacher, and what is learned from it and from the text."""

    teacher: str | None = setting("path", None, "teacher model with the same tokenizer", metavar="DIR")
    distillation: Kind = setting(
        "text",
        "relational",
        "distillation loss: relational (standardised states, correlations of predictions) or classical "
        "(squared differences, softened predictions)",
        choices=("relational", "classical"),
    )
    teacher_only: bool = setting(
        "flag", False, "learn from the teacher only, without the language-model loss"
    )
    predictions: float | None = setting(
        "number", None, "weight of the loss on the teacher's predictions", low=0, high=1e6
    )

    def __post_init__(self) -> None:
        if self.teacher_only and self.teacher is None:
            raise ValueError("teacher_only learns from a teacher: name one by --teacher")


@dataclass(frozen=True)
class StepRequest:
    """How a step of training is made."""

    batch: int = setting("integer", 32, "sequences per step", low=1, high=1 << 20)
    length: int = setting("integer", 128, "tokens per sequence", low=2, high=1 << 20)
    rate: float = setting("number", 1e-3, "learning rate", low=0, high=10)
    compute: TrainedOn = part(TrainedOn)
    seed: int = setting("integer", 0, "seed of weights, paths and data order", low=0, high=(1 << 30) - 1)

    def training(self, tokens: int) -> TrainingRequest:
        """Return a training on this number of tokens."""
        check_one_batch(tokens, self.batch, self.length)
        execution = Execution(self.compute)
        return TrainingRequest(tokens, self.batch, self.length, Schedule(self.rate), self.seed, execution)


@dataclass(frozen=True)
class SupernetSource:
    """The text that a supernet is trained on, and how it is cut: so what is held out stays so."""

    source: str
    sha256: str
    most: int
    length: int


@dataclass(frozen=True)
class TrainingFacts:
    """How a supernet was trained; ``growth`` is 0 where its widths were fixed."""

    tokens: int
    steps: int
    batch: int
    length: int
    rate: float
    seed: int
    epochs: int
    growth: int
    seconds: float


@dataclass(frozen=True)
class GrowthEpoch:
    """Of an epoch: widths and mean scores (layers, kinds), diversity by layer, mean parameters of paths."""

    epoch: int
    widths: list[list[int]]
    scores: list[list[float]]
    diversity: list[float]
    mean_params: float


@dataclass(frozen=True, repr=False, eq=False)
class TrainedSupernet:
    """The outcome of a training: the space as it has grown, the ``history`` of its epochs, its ``log``.

    ``kinds`` are the blocks that each layer chooses from, with the projections that they share. ``teacher``
    and ``distillation`` are None without one. ``log`` has the losses by ``tokens``.
    """

    space: str
    settings: dict[str, Any]
    depth: int
    kinds: list[tuple[str, str]]
    text: SupernetSource
    teacher: str | None
    distillation: str | None
    training: TrainingFacts
    history: list[GrowthEpoch]
    log: list[Row]


@dataclass(frozen=True)
class PathLayer:
    """A layer of a path: its ``block``, the projections that it shares, its heads, its FFN width.

    ``head_size`` is None where the heads fill the width of the block.
    """

    block: str
    share: str
    ffn: int
    heads: int
    head_size: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the layer as an architecture has it."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, repr=False, eq=False)
class Exported:
    """The outcome of a hand-over: layers, costs, losses on text held out ``before`` and ``after`` training.

    Without training there is one loss, by the name ``UNTRAINED``.
    ``similarity`` are the CKA matrices of each layer's heads, where they were compared; ``log`` is that of
    the training.
    """

    space: str
    layers: list[PathLayer]
    words: str
    costs: dict[str, int]
    losses: dict[str, float]
    heads: str
    similarity: list[list[list[float]]]
    log: list[Row]
