"""KL divergence and surprise of networks from their logits, a few rows at a time (torch)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

CACHED: Final = 1 << 17
"""Logits per thread that enter the softmax at a time: 512 KiB of float32, which stay in its cache."""
ON_DEVICE: Final = 1 << 24
"""Logits at a time on a device, where a call costs more than the memory."""
MOST_NATS: Final = 700.0
"""Largest mean surprise in nats: that of a broken network may exceed the largest exponential in float64."""


def kl(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    """Return KL(p || q) = sum_y p(y) (ln p(y) - ln q(y)) in nats, (..., n), of logits of p and q (..., n, v).

    Softmax and sum are in float32. The result is exactly 0 for equal logits; rounding may leave it below 0.
    """
    return _by_rows(_kl, logits_p, logits_q)


def surprises(logits: Tensor, following: Tensor) -> Tensor:
    """Return -ln q(y) in nats, (..., n), of logits of q (..., n, v) and the tokens y that follow (..., n)."""
    return _by_rows(_surprise, logits, following[..., None])


def perplexity(nats: float) -> float:
    """Return e to the mean surprise of a token in nats, at most e to ``MOST_NATS``."""
    return math.exp(min(nats, MOST_NATS))


def _kl(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    log_p, log_q = (functional.log_softmax(logits.float(), dim=-1) for logits in (logits_p, logits_q))
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def _surprise(logits: Tensor, following: Tensor) -> Tensor:
    return -functional.log_softmax(logits.float(), dim=-1).gather(-1, following).squeeze(-1)


def _by_rows(function: Callable[[Tensor, Tensor], Tensor], logits: Tensor, other: Tensor) -> Tensor:
    """Return a function of rows (..., n, v) and (..., n, w), computed for a slice of n at a time."""
    *before, count, vocab = logits.shape
    room = CACHED * torch.get_num_threads() if logits.device.type == "cpu" else ON_DEVICE
    step = max(1, room // (math.prod(before) * vocab))
    if count <= step:
        return function(logits, other)
    parts = zip(torch.split(logits, step, -2), torch.split(other, step, -2), strict=True)
    return torch.cat([function(*part) for part in parts], -1)
