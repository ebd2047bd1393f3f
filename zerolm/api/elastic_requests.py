"""Settings of the commands on supernets as requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zerolm.elastic.learner import Aim
    from zerolm.training.request import TrainingRequest


def training_of(own: Mapping[str, Any]) -> TrainingRequest:
    """Return how long and how fast to train."""
    from zerolm.training.request import Execution, Schedule, TrainingRequest

    return TrainingRequest(
        own["tokens"],
        own["batch"],
        own["length"],
        Schedule(own["rate"]),
        own["seed"],
        Execution(own["precision"]),
    )


def aim_of(own: Mapping[str, Any]) -> Aim:
    """Return the losses: of the text, and of a teacher where one is named."""
    from zerolm.elastic.learner import Aim

    if own["teacher"] is None:
        if own["teacher_only"]:
            raise ValueError("teacher_only learns from a teacher: name one by --teacher")
        return Aim()
    return Aim(not own["teacher_only"], own["distillation"], own["predictions"] or 0.0)
