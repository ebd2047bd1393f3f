"""Requests of a fine-tuning, and its result."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from zerolm.elastic.distillation import OF_FEATURES, Kind
from zerolm.training.request import Execution

TASKS: Final = ("classification", "spans")
HELD_OUT: Final = 0.1
"""The part of the rows that is held out where no others are given to validate on."""


@dataclass(frozen=True)
class TaskData:
    """A task, ``classification`` or ``spans``, the rows to train on, and others to validate on.

    Both are CSV files or data sets of the hub, ``owner/name:config:split``; without others a tenth of the
    rows is held out. ``columns`` are, of classes, the text and, if there are pairs, the second one, then the
    label; of spans, the question, the context and the answer.
    """

    task: Literal["classification", "spans"]
    train: str
    validation: str | None = None
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ValueError(f"task {self.task!r} is not known; {' and '.join(TASKS)} are")
        counts = {"classification": (2, 3), "spans": (3,)}[self.task]
        if self.columns and len(self.columns) not in counts:
            raise ValueError(
                f"{self.task} has {' or '.join(map(str, counts))} columns, not {len(self.columns)}: "
                + ("text, perhaps a second one, and label" if 2 in counts else "question, context and answer")
            )

    @property
    def named(self) -> tuple[str, ...]:
        """Return the columns, those of the task where none are given."""
        default = ("text", "label") if self.task == "classification" else ("question", "context", "answer")
        return self.columns or default


@dataclass(frozen=True)
class FinetuneRequest:
    """``epochs`` over the rows in batches of ``batch``, of at most ``length`` tokens each.

    ``distillation`` says how the losses of a teacher are measured, if there is one.
    """

    data: TaskData
    epochs: int = 10
    batch: int = 32
    length: int = 128
    rate: float = 5e-5
    distillation: Kind = "relational"
    seed: int = 0
    execution: Execution = field(default_factory=Execution)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 < self.rate < 1:
            raise ValueError(f"the rate {self.rate} is not between 0 and 1; 5e-5 is usual")
        if self.distillation not in OF_FEATURES:
            raise ValueError(
                f"distillation {self.distillation!r} is not known; {' and '.join(OF_FEATURES)} are"
            )


@dataclass(frozen=True, eq=False)
class Finetuned:
    """The outcome: measures on rows that were not trained on, ``before`` and ``after`` the training.

    ``baseline`` is what the commonest class, or the whole text as the answer, reaches; ``teacher`` what the
    teacher does. ``rows`` counts those to train and to validate on, ``curve`` has the measures by step.
    """

    names: dict[str, str]
    rows: dict[str, int]
    training: dict[str, Any]
    measures: dict[str, dict[str, float]]
    curve: list[dict[str, float]]

    def to_json(self) -> dict[str, Any]:
        """Return everything as one object."""
        own = asdict(self)
        return {**own.pop("names"), **own}
