"""The choice of the experts that a layer keeps: by single scores, by the worst domain, or by pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.solvers.maximin import best_at_worst
from zerolm.solvers.quadratic import least_pairs


@dataclass(frozen=True, eq=False)
class ChosenExperts:
    """The experts that a layer keeps, ascending.

    For choices by pairs ``loss`` is p' F p of the removed experts. For choices by domains another choice
    would be better by at most a share of ``gap``. Both are None elsewhere.
    """

    kept: Ints
    loss: float | None = None
    gap: float | None = None

    @property
    def is_proven(self) -> bool:
        """Whether it is proven that no other choice is better; a choice by pairs has no proof."""
        return self.loss is None and not self.gap


def best_experts(scores: Floats, count: int, groups: int = 1) -> Ints:
    """Return the ``count`` experts, ascending, with the largest sum of scores (e,), equally many per group.

    Experts of a group are consecutive. The sum is separable, so the best of each group are the best choice.
    """
    best = best_of_rows(scores.reshape(groups, -1), count // groups, "an expert's")
    return (best + np.arange(groups)[:, None] * (len(scores) // groups)).reshape(-1)


def best_of_rows(scores: Floats, count: int, whose: str = "a neuron's") -> Ints:
    """Return the ``count`` places (r, count), ascending, with the largest scores (r, n) of each row.

    Ties go to the first. Raises ``ValueError``, with ``whose`` they are, for a score that is not finite.
    """
    if not np.isfinite(scores).all():
        raise ValueError(f"{whose} score is NaN or infinite: the model's activations are not finite")
    best: Ints = np.sort(np.argsort(-scores, axis=1, kind="stable")[:, :count], axis=1)
    return best


def best_by_domains(scores: Floats, count: int, groups: int = 1) -> ChosenExperts:
    """Return ``count`` experts, equal numbers from each group, with the best worst domain.

    ``scores`` are (domains, e); a domain counts by the share of its sum that is kept.
    """
    totals = scores.sum(1, keepdims=True)
    used = (totals > 0)[:, 0]
    if not used.any():
        return ChosenExperts(best_experts(scores.sum(0), count, groups))
    best = best_at_worst(scores[used] / totals[used], count, groups)
    return ChosenExperts(best.chosen, gap=best.gap)


def best_by_pairs(pairs: Floats, count: int, groups: int = 1) -> ChosenExperts:
    """Return ``count`` experts, equal numbers from each group, with a small p' F p of the removed ones.

    ``pairs`` F is (e, e). No exchange of two experts lowers it. Raises ``ValueError`` for a pair that is
    not finite.
    """
    removed = least_pairs(pairs, len(pairs) - count, groups)
    kept = np.setdiff1d(np.arange(len(pairs)), removed)
    return ChosenExperts(kept, float(pairs[np.ix_(removed, removed)].sum()))
