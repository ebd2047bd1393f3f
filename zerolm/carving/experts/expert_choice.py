"""The choice of the experts that a layer keeps: the best there is, or one with a proof of how near it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.solvers.maximin import best_at_worst
from zerolm.solvers.quadratic import least_pairs

UNTOLD: Final[dict[str, Any]] = {**dict.fromkeys(("tokens", "gates", "loss", "gap")), "domains": {}}
"""What is said of experts that no choice was made of here."""


@dataclass(frozen=True, eq=False)
class ChosenExperts:
    """The experts that a layer keeps, ascending; by pairs also what those that leave lose, and the gap.

    ``loss`` is p' F p of the experts that leave, None by the worth of single experts. Another choice would
    be better by a share of ``gap`` at most, which is None where the best is plain.
    """

    kept: Ints
    loss: float | None = None
    gap: float | None = None


def best_experts(worth: Floats, count: int, groups: int = 1) -> Ints:
    """Return the ``count`` experts (ascending) of the largest sum of worth (e,), as many of each group.

    Experts of a group follow one another. The sum is separable, so that the best of each group are the best
    choice; of equal ones the first stay. ``ValueError`` for a worth that is no number.
    """
    if not np.isfinite(worth).all():
        raise ValueError("an expert's score is NaN or infinite: the model's activations are not finite")
    by_group = worth.reshape(groups, -1)
    order = np.argsort(-by_group, axis=1, kind="stable")[:, : count // groups]
    first = np.arange(groups)[:, None] * by_group.shape[1]
    return np.sort((order + first).reshape(-1))


def best_by_domains(worths: Floats, count: int, groups: int = 1) -> ChosenExperts:
    """Return ``count`` experts, as many of each group, that keep the most where they keep the least.

    ``worths`` are (domains, e); what counts of each domain is the share of its sum that stays.
    """
    totals = worths.sum(1, keepdims=True)
    used = (totals > 0)[:, 0]
    if not used.any():
        return ChosenExperts(best_experts(worths.sum(0), count, groups))
    best = best_at_worst(worths[used] / totals[used], count, groups)
    return ChosenExperts(best.chosen, gap=best.gap)


def best_by_pairs(pairs: Floats, count: int, groups: int = 1) -> ChosenExperts:
    """Return ``count`` experts, as many of each group, without which p' F p of the others is least.

    ``pairs`` F is (e, e). ``ValueError`` for a pair that is no number.
    """
    gone = least_pairs(pairs, len(pairs) - count, groups)
    kept = np.setdiff1d(np.arange(len(pairs)), gone.chosen)
    return ChosenExperts(kept, gone.value, gone.gap)
