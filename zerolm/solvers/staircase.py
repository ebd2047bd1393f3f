"""The Pareto front of a list of points: the highest score at each cost."""

from __future__ import annotations

from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints

FRONT_POINTS: Final = 4000
"""Points of a front up to which it is given whole."""


def staircase(cost: Ints, score: Floats) -> Ints:
    """Return the indices of the front of points (n,), cheapest first.

    A score is higher than another where it is so by more than 1e-12 of it. Of equal points the first counts.
    """
    order: Ints = np.lexsort((-score, cost))
    score = score[order]
    running = np.maximum.accumulate(score)
    higher = score[1:] > running[:-1] + 1e-12 * np.abs(running[:-1])
    points: Ints = order[np.concatenate([[True], higher])[: len(order)]]
    return points


def thinned(points: Ints, most: int | None) -> Ints:
    """Return at most ``most`` of the points, evenly chosen, both ends among them."""
    if most is None or len(points) <= most:
        return points
    return points[np.linspace(0, len(points) - 1, most).round().astype(np.int64)]
