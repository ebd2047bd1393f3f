"""Training until the time is over: AdamW at a rate that follows the share of the time that has passed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from timing import note
from torch import Tensor, nn

WARM_UP: Final = 0.05
"""Share of the time in which the rate rises; it then falls along a cosine, to zero."""
CLIP: Final = 1.0
DECAY: Final = 0.1
NOTES: Final = 20


@dataclass(frozen=True)
class Curve:
    """What a training did: ``losses`` are means over some twentieth of the time each, ``steps`` are all."""

    losses: tuple[float, ...]
    steps: int


def train(model: nn.Module, loss_of_batch: Callable[[], Tensor], *, seconds: float, rate: float) -> Curve:
    """Train for so many seconds, one step at least; ``rate`` is the highest learning rate."""
    optimizer = _optimizer(model, rate)
    half = has_bfloat16()
    means: list[float] = []
    losses: list[float] = []
    steps, share, start = 0, 0.0, time.monotonic()
    model.train()
    while share < 1.0:
        for group in optimizer.param_groups:
            group["lr"] = rate * schedule(share)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = loss_of_batch()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        steps += 1
        share = (time.monotonic() - start) / seconds
        if share * NOTES >= len(means) + 1 or share >= 1.0:
            means.append(sum(losses) / len(losses))
            losses.clear()
            note(f"  {min(share, 1.0):4.0%} of the time, step {steps:,}: loss {means[-1]:.3f}")
    model.eval()
    return Curve(tuple(means), steps)


def schedule(share: float) -> float:
    """The learning rate as a share of the highest, after this share of the time."""
    if share < WARM_UP:
        return (share + 0.02 * WARM_UP) / (1.02 * WARM_UP)
    return 0.5 + 0.5 * math.cos(math.pi * min(1.0, (share - WARM_UP) / (1.0 - WARM_UP)))


def has_bfloat16() -> bool:
    """Whether the processor multiplies in bfloat16: training is then 1.5 times as fast, else much slower."""
    flags = Path("/proc/cpuinfo")
    return flags.is_file() and "avx512_bf16" in flags.read_text()


def _optimizer(model: nn.Module, rate: float) -> torch.optim.AdamW:
    """Matrices decay, vectors do not."""
    parameters = list(model.parameters())
    groups = [
        {"params": [each for each in parameters if each.ndim > 1], "weight_decay": DECAY},
        {"params": [each for each in parameters if each.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, rate, betas=(0.9, 0.95), fused=True)
