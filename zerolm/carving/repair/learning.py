"""The learning curve of a refit: two points, and what they say of twice the tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Learned(NamedTuple):
    """Squared errors of a refitted matrix on held-out tokens, solved on half of the tokens and on all."""

    half: float
    whole: float


def less_by_twice(points: Iterable[Learned]) -> float:
    """Return the share of the held-out error, 0 to 1, that twice the tokens would take away.

    The error of a regression is a + b / n for n tokens, so the next doubling gains half of what the last one
    did. 0 where there are no points.
    """
    half, whole = (sum(errors) for errors in zip(*points, strict=True)) if (points := [*points]) else (0, 0)
    return max(0.0, (half - whole) / (2 * whole)) if whole > 0 else 0.0
