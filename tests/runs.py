"""Small trainings: a tiny network on random tokens."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tiny import model

from zerolm.settings.compute import TrainedOn
from zerolm.text.corpus import Corpus, Sequences, TokenFile
from zerolm.training.learner import Objective, Student
from zerolm.training.request import Execution, Schedule, TrainingRequest
from zerolm.training.train import train
from zerolm.training.watch import TrainingRun

LENGTH, BATCH = 8, 4


def tokens(count: int = 4000, seed: int = 0, name: str = "text") -> TokenFile:
    """A text in which the next token is often the one after, so that there is something to learn."""
    steps = np.random.default_rng(seed).integers(0, 4, count)
    return TokenFile(name, f"{seed:064x}", 1, (np.cumsum(steps) % 64).astype(np.uint16))


def corpus(length: int = LENGTH) -> Corpus:
    return Corpus((tokens(),), length)


def request(steps: int, rate: float = 3e-3, **more: Any) -> TrainingRequest:
    return TrainingRequest(
        steps * BATCH * LENGTH, BATCH, LENGTH, Schedule(rate), **{"checkpoints": steps // 2, **more}
    )


def learner(name: str = "llama", *losses: str, seed: int = 0) -> Student:
    pairs = tuple((place, place) for place in range(1, 4))
    return Student(model(name, seed), Objective(dict.fromkeys(losses or ("next-token",), 1.0), layers=pairs))


def trained(folder: Path, plan: TrainingRequest, name: str = "llama", **more: Any) -> dict[str, torch.Tensor]:
    """The weights that a run in this folder ends with."""
    folder.mkdir(exist_ok=True)
    student = learner(name)
    train(student, data(plan), plan, TrainingRun(folder, **more))
    return weights(student)


def data(plan: TrainingRequest) -> Sequences:
    return Sequences(corpus(plan.length), plan.sequences, plan.seed)


def weights(student: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in student.state_dict().items()}


def difference(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


def in_parts(accumulate: int) -> Execution:
    return Execution(TrainedOn(dtype="float32"), accumulate)
