"""How long a step of a training takes here."""

from __future__ import annotations

import time
from typing import Final

import torch
from torch import nn

from zerolm.text.corpus import Sequences
from zerolm.training.learner import Teacher, total
from zerolm.training.processes import device_for
from zerolm.training.request import Execution
from zerolm.training.teacher import half_precision

TRIALS: Final = 5
"""Batches that are tried; the first is not timed: it allocates what the others use again."""


def step_seconds(
    learner: nn.Module, batches: Sequences, teacher: Teacher | None, execution: Execution
) -> float:
    """Return the seconds of forward and backward passes over a batch, the mean of ``TRIALS`` - 1.

    ``batches`` are ``TRIALS`` of the same number of sequences. No weight is changed.
    """
    device = device_for(execution)
    learner.to(device)
    size, begun = len(batches) // TRIALS, 0.0
    for trial in range(TRIALS):
        samples = [batches[trial * size + place] for place in range(size)]
        ids, numbers = (torch.stack([sample[name] for sample in samples]) for name in ("input_ids", "number"))
        ids = ids.to(device)
        signals = teacher.signals(ids, numbers) if teacher else {}
        with half_precision(device, execution.bfloat16):
            loss = total(learner(ids, **signals))
        loss.backward()  # type: ignore[no-untyped-call]
        float(loss.detach())
        learner.zero_grad(set_to_none=True)
        begun = begun or time.perf_counter()
    return (time.perf_counter() - begun) / (TRIALS - 1)
