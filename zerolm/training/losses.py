"""Losses on batches of tokens: of the text, and of a teacher's predictions and hidden states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from zerolm.networks.batch import NOTHING
from zerolm.passes.divergence import kl

HELD_BATCH: Final = 16
"""Held-out sequences that are measured at a time."""
TINY: Final = 1e-6
STILL: Final = 1e-5
"""A channel whose deviation is less than this share of its size, or of all channels' size, stands still."""


def next_token(logits: Tensor, ids: Tensor) -> Tensor:
    """Return the mean cross-entropy of each next token, in nats: logits (b, t, v), ids (b, t)."""
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


def labelled(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of what is labelled: logits (b, t, v), labels (b, t) or -100."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=NOTHING)


@torch.no_grad()
def mean_loss(
    loss: Callable[[Tensor, Tensor], Tensor], inputs: Tensor, labels: Tensor, device: Any = "cpu"
) -> float:
    """Return the mean ``loss`` over all that is labelled in sequences (n, t), a few of them at a time."""
    total, count = 0.0, 0
    for first in range(0, len(inputs), HELD_BATCH):
        part = slice(first, first + HELD_BATCH)
        predictions = int((labels[part] != NOTHING).sum())
        if predictions:
            total += float(loss(inputs[part].to(device), labels[part].to(device))) * predictions
            count += predictions
    return total / count


def forward_kl(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """Return T^2 KL(teacher || student), the mean over positions in nats, of logits (b, t, v) of both.

    Both are divided by the temperature T; T^2 keeps the gradients' size (Hinton et al., arXiv 1503.02531).
    """
    return kl(teacher.float() / temperature, student.float() / temperature).mean() * temperature**2


def reverse_kl(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """Return T^2 KL(student || teacher), the mean over positions in nats, of logits (b, t, v) of both."""
    return forward_kl(teacher, student, temperature)


def top_kl(student: Tensor, log_p: Tensor, ids: Tensor, temperature: float = 1.0) -> Tensor:
    """Return T^2 KL(teacher || student) over the teacher's k likeliest tokens and all others as one.

    ``log_p`` and ``ids`` (b, t, k) are the teacher's log-probabilities at the temperature, logits (b, t, v).
    By the log-sum inequality it is at most ``forward_kl``, and equal where k = v.
    """
    every = _log_softmax(student, temperature)
    log_q = every.gather(-1, ids)  # (b, t, k)
    inside = (log_p.exp() * (log_p - log_q)).sum(-1)
    if log_p.shape[-1] == every.shape[-1]:
        return inside.mean() * temperature**2
    rest_p, rest_q = (1.0 - part.exp().sum(-1) for part in (log_p, log_q))
    rest_p, rest_q = rest_p.clamp_min(0.0), rest_q.clamp_min(TINY)
    outside = rest_p * (rest_p.clamp_min(TINY).log() - rest_q.log())
    return (inside + outside).mean() * temperature**2


def standardised(
    of_student: Sequence[Tensor], of_teacher: Sequence[Tensor], padding: Tensor | None = None
) -> Tensor:
    """Return the mean squared difference of standardised features, the mean over pairs of (b, t, d).

    Every channel of every sample has mean 0 and deviation 1 over the tokens, so that the loss is 2 (1 - r) of
    Pearson's correlation r: scale and shift of a channel do not count (PKD, arXiv 2207.02039; ELM, arXiv
    2510.27037). One that stands still, or is empty, counts as 0 and has no gradient. ``padding`` (b, t) is 0
    on tokens that do not count.
    """
    pairs = zip(of_student, of_teacher, strict=True)
    losses = [
        _mean_square(_over_tokens(student, padding) - _over_tokens(teacher, padding), padding)
        for student, teacher in pairs
    ]
    return torch.stack(losses).mean()


def relative_mse(
    of_student: Sequence[Tensor], of_teacher: Sequence[Tensor], padding: Tensor | None = None
) -> Tensor:
    """Return the mean squared difference of features over the teacher's mean square, the mean over pairs.

    Scale and shift count, as they do where an encoder's tokens are averaged into an embedding. ``padding`` is
    that of ``standardised``.
    """
    losses = [
        _mean_square(student.float() - teacher.float(), padding)
        / _mean_square(teacher.float(), padding).clamp_min(TINY)
        for student, teacher in zip(of_student, of_teacher, strict=True)
    ]
    return torch.stack(losses).mean()


def dist(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """Return DIST of logits (b, t, v): T^2 (1 - r) over the classes of each row, plus over the rows of each.

    r is Pearson's correlation of the softmaxes at the temperature (Huang et al., arXiv 2205.10536, with
    beta = gamma = 1). Of two classes the first term has no gradient.
    """
    p, q = (_log_softmax(logits, temperature).exp().flatten(0, -2) for logits in (teacher, student))  # (n, v)
    rows, columns = (1.0 - _pearson(p, q, axis).mean() for axis in (1, 0))
    return (rows + columns) * temperature**2


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    return functional.log_softmax(logits.float() / temperature, dim=-1)


def _over_tokens(features: Tensor, padding: Tensor | None) -> Tensor:
    values = features.float()
    counts = torch.ones(values.shape[:2], device=values.device) if padding is None else padding.float()
    weights = (counts / counts.sum(1, keepdim=True).clamp_min(1))[..., None]  # (b, t, 1)

    def mean(x: Tensor) -> Tensor:
        return (x * weights).sum(1, keepdim=True)

    centred = values - mean(values)
    variance, size = mean(centred.square()), mean(values.square())
    # a norm may weigh a channel by 1e-33: made to deviate by 1, its gradient is beyond float32
    least = torch.maximum(size, size.mean(-1, keepdim=True))
    moves = variance > STILL**2 * least  # else it is rounding, and the root has no gradient at 0
    return centred * torch.where(moves, variance, 1.0).rsqrt() * moves


def _mean_square(values: Tensor, padding: Tensor | None) -> Tensor:
    if padding is None:
        return values.square().mean()
    return values[padding.bool()].square().mean()


def _pearson(student: Tensor, teacher: Tensor, axis: int) -> Tensor:
    a, b = (_unit(x - x.mean(axis, keepdim=True), axis) for x in (student, teacher))
    return (a * b).sum(axis)


def _unit(vectors: Tensor, axis: int) -> Tensor:
    """Return vectors of length 1, or 0, along an axis; squares of rare tokens' probabilities would be 0."""
    largest = vectors.detach().abs().amax(axis, keepdim=True)
    scaled = vectors / torch.where(largest > 0, largest, 1.0)
    squares = scaled.square().sum(axis, keepdim=True)
    return scaled * torch.where(largest > 0, squares, 1.0).rsqrt()
