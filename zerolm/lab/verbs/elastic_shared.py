"""Settings that the verbs on supernets share: whom to learn from, and how a step is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zerolm.settings import REQUIRED
from zerolm.settings.compute import TrainedOn
from zerolm.settings.request import argument, part, setting

if TYPE_CHECKING:
    from zerolm.lab.supernets.learner import Aim
    from zerolm.training.request import TrainingRequest


@dataclass(frozen=True)
class TeacherSettings:
    """A teacher, and what is learned from it."""

    teacher: str | None = setting("path", None, "teacher model with the same tokenizer", metavar="DIR")
    distillation: Any = setting(
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

    def aim(self) -> Aim:
        """Return the losses: of the text, and of a teacher where one is named."""
        from zerolm.lab.supernets.learner import Aim

        if self.teacher is None:
            if self.teacher_only:
                raise ValueError("teacher_only learns from a teacher: name one by --teacher")
            return Aim()
        return Aim(not self.teacher_only, self.distillation, self.predictions or 0.0)


@dataclass(frozen=True)
class StepSettings:
    """How a step of training is made."""

    batch: int = setting("integer", 32, "sequences per step", low=1, high=1 << 20)
    length: int = setting("integer", 128, "tokens per sequence", low=2, high=1 << 20)
    rate: float = setting("number", 1e-3, "learning rate", low=0, high=10)
    compute: TrainedOn = part(TrainedOn)
    seed: int = setting("integer", 0, "seed of weights, paths and data order", low=0, high=(1 << 30) - 1)

    def training(self, tokens: int) -> TrainingRequest:
        """Return a training on this number of tokens."""
        from zerolm.training.request import Execution, Schedule, TrainingRequest

        execution = Execution(self.compute)
        return TrainingRequest(tokens, self.batch, self.length, Schedule(self.rate), self.seed, execution)


def supernet() -> Any:
    """Return a field for the folder of a trained supernet."""
    return argument("path", REQUIRED, "folder of a trained supernet", metavar="SUPERNET")
