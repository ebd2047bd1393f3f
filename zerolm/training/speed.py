"""How many tokens a run takes in a given time, from steps that are tried first."""

from __future__ import annotations

import time
from typing import Final

from torch import nn

from zerolm.text.corpus import Sequences, batch_of
from zerolm.training.learner import Teacher, total
from zerolm.training.processes import device_for
from zerolm.training.request import Execution
from zerolm.training.teacher import half_precision

TRIALS: Final = 3


def tokens_within(
    seconds: float, learner: nn.Module, batch: Sequences, teacher: Teacher | None, execution: Execution
) -> int:
    """Return how many tokens steps of this batch train on in so many seconds, at least those of one.

    Some steps are tried, without changing the weights; the fastest counts.
    """
    device = device_for(execution)
    learner.to(device)
    ids, numbers = batch_of(batch)
    ids = ids.to(device)
    fastest = float("inf")
    for _ in range(TRIALS):
        begun = time.perf_counter()
        signals = teacher.signals(ids, numbers) if teacher else {}
        with half_precision(device, execution.bfloat16):
            loss = total(learner(ids, **signals))
        loss.backward()  # type: ignore[no-untyped-call]
        float(loss)
        fastest = min(fastest, time.perf_counter() - begun)
        learner.zero_grad(set_to_none=True)
    return max(1, int(seconds / fastest)) * ids.numel()
