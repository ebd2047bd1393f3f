"""Requests of supernets: how they grow, what they learn from, and how a step is made.

The fields declare the settings of ``zerolm lab elastic``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from zerolm.settings.compute import TrainedOn
from zerolm.settings.request import part, setting
from zerolm.training.request import Execution, Schedule, TrainingRequest, check_one_batch

Kind = Literal["relational", "classical"]
ETA: Final = {"bert": 0.99, "mobile": 0.9, "llama": 0.99}
"""The share of the variance that counts as rich, by block."""


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
