"""Agreement of a score with trained results: rank correlations that respect ties."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zerolm.architecture import Floats, Ints

TOLERANCE = 1e-9
"""Scores that differ by less, relatively, are equal: floating point must not break a tie."""


def tie_ranks(values: Floats, tolerance: float = TOLERANCE) -> Ints:
    """Dense ranks (n,) from 0, lowest first, of values (n,): neighbours within ``tolerance`` share one.

    The tolerance is relative to the larger of the two magnitudes.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    scale = np.maximum(np.abs(ordered[1:]), np.abs(ordered[:-1]))
    steps = np.concatenate([[0], np.cumsum(np.diff(ordered) > tolerance * scale)])
    ranks = np.empty(len(values), np.int64)
    ranks[order] = steps[: len(values)]
    return ranks


@dataclass(frozen=True, slots=True)
class Agreement:
    """Rank agreement of a score with a result, both "higher is better".

    ``tau`` is Kendall's tau-b, ``tau_random_ties`` the expectation of tau when the ties of the score
    are broken at random, ``rho`` Spearman's rho with average ranks.
    """

    n: int
    tau: float
    tau_random_ties: float
    rho: float


def agreement(score: Floats, result: Floats) -> Agreement:
    """Agreement of ``score`` (n,) with ``result`` (n,); undefined values (a constant side) are nan.

    tau-b = (C - D) / sqrt((n0 - n_x)(n0 - n_y)); tau_random_ties = (C - D) / sqrt(n0 (n0 - n_y)),
    with n0 all pairs, n_x and n_y the pairs tied in the score and in the result.
    """
    if score.shape != result.shape or score.ndim != 1:
        raise ValueError(f"a score of shape {score.shape} and a result of shape {result.shape} do not pair")
    x, y = tie_ranks(score), tie_ranks(result, 0.0)
    difference = 0
    for i in range(1, len(x)):
        difference += int(np.sum(np.sign(x[i] - x[:i]) * np.sign(y[i] - y[:i])))
    pairs = len(x) * (len(x) - 1) // 2
    untied_x, untied_y = pairs - _tied_pairs(x), pairs - _tied_pairs(y)
    return Agreement(
        n=len(x),
        tau=_ratio(difference, untied_x, untied_y),
        tau_random_ties=_ratio(difference, pairs, untied_y) if untied_x else float("nan"),
        rho=_pearson(_average_ranks(x), _average_ranks(y)),
    )


def _tied_pairs(ranks: Ints) -> int:
    counts = np.bincount(ranks)
    return int(np.sum(counts * (counts - 1) // 2))


def _ratio(difference: int, a: int, b: int) -> float:
    return difference / float(np.sqrt(float(a) * float(b))) if a and b else float("nan")


def _average_ranks(ranks: Ints) -> Floats:
    counts = np.bincount(ranks)
    return (np.cumsum(counts) - (counts - 1) / 2.0)[ranks]


def _pearson(x: Floats, y: Floats) -> float:
    x, y = x - x.mean(), y - y.mean()
    norm = float(np.sqrt(np.sum(x * x) * np.sum(y * y)))
    return float(np.sum(x * y)) / norm if norm else float("nan")
