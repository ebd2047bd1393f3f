"""The outcome of a supernet's training, and of a hand-over: plain numbers and names, read without torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

SUPERNET_LOSS: Final = "supernet"
"""The score of a path that is its loss in the supernet."""
Row = dict[str, int | float]
"""Of a log: ``step``, ``tokens``, losses by name, measures."""


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


UNTRAINED: Final = "as exported"


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
