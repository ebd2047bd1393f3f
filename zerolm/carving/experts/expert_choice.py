"""The exact choice of the experts that a layer keeps."""

from __future__ import annotations

import numpy as np

from zerolm.architecture import Floats, Ints


def best_experts(worth: Floats, count: int, groups: int = 1) -> Ints:
    """Return the ``count`` experts (ascending) of the largest sum of worth (e,), as many of each group.

    Experts of a group follow one another. The sum is separable, so that the best of each group are the best
    choice; of equal ones the first stay. ``ValueError`` for a worth that is no number.
    """
    if not np.isfinite(worth).all():
        raise ValueError("the worth of an expert is no number: the network sends what is not finite")
    by_group = worth.reshape(groups, -1)
    order = np.argsort(-by_group, axis=1, kind="stable")[:, : count // groups]
    first = np.arange(groups)[:, None] * by_group.shape[1]
    return np.sort((order + first).reshape(-1))
