"""Random numbers that follow from a seed, without a trace in the program around; and dropout."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn
from transformers import set_seed


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within, random numbers of Python, numpy and torch follow from the seed; after it they are as before."""
    python, legacy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            set_seed(seed)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)


def without_dropout(network: nn.Module) -> None:
    for part in network.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
