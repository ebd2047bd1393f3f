"""Agreement of a score with trained results: rank correlations that respect ties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints

TOLERANCE = 1e-9
"""Scores that differ by less, relatively, are equal: floating point must not break a tie."""
CELLS: Final = 1 << 22
"""Pairs compared at once: what fits the memory of any machine, and nearly its cache."""


def tie_ranks(values: Floats, tolerance: float = TOLERANCE) -> Ints:
    """Return dense ranks (..., n) from 0, lowest first, of values (..., n).

    Neighbours within ``tolerance`` share one; it is relative to the larger of the two magnitudes.
    """
    order = np.argsort(values, axis=-1, kind="stable")
    ordered = np.take_along_axis(values, order, -1)
    scale = np.maximum(np.abs(ordered[..., 1:]), np.abs(ordered[..., :-1]))
    steps = np.zeros(values.shape, np.int64)
    np.cumsum(np.diff(ordered) > tolerance * scale, axis=-1, out=steps[..., 1:])
    ranks = np.empty_like(steps)
    np.put_along_axis(ranks, order, steps, -1)
    return ranks


def tie_sizes(ranks: Ints) -> Ints:
    """Return the number of values with each rank, (m, n) of dense ranks (m, n), 0 beyond the highest."""
    m, n = ranks.shape
    return np.bincount((ranks + n * np.arange(m)[:, None]).ravel(), minlength=m * n).reshape(m, n)


def average_ranks(ranks: Ints) -> Floats:
    """Return ranks (m, n) from 1, lowest first, tied ones their average, of dense ranks (m, n)."""
    sizes = tie_sizes(ranks)
    average = np.cumsum(sizes, axis=1) - (sizes - 1) / 2.0
    return np.asarray(np.take_along_axis(average, ranks, 1))


def finite_pair(score: Floats, result: Floats, *others: Floats | Ints) -> None:
    """Raise ``ValueError`` unless all are finite and of one shape (n,)."""
    shapes = [np.shape(values) for values in (score, result, *others)]
    if len(shapes[0]) != 1 or len(set(shapes)) > 1:
        listed = ", ".join(map(str, shapes))
        raise ValueError(f"vectors of shapes {listed} do not pair: one entry an architecture is needed")
    if not all(np.isfinite(values).all() for values in (score, result, *others)):
        raise ValueError("a score, a result or a cost is not a finite number")


def correlation(product: Floats | Ints, a: Floats | Ints, b: Floats | Ints) -> Floats:
    """Return product / sqrt(a b), all (m,); nan where a or b is 0: a side that is constant."""
    norm = np.sqrt(np.asarray(a, np.float64) * b)
    ratio = np.full(norm.shape, np.nan)
    np.divide(product, norm, out=ratio, where=norm > 0)
    return ratio


def quantiles(values: Floats | Ints, numerators: Sequence[int], denominator: int) -> Floats:
    """Return the quantiles numerator / denominator of values (n,), interpolated linearly.

    Positions are integers, so that a quantile which falls on a value is that value: a budget of
    exactly what an architecture costs must not miss it by a rounding error.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    below, part = np.divmod((len(ordered) - 1) * np.asarray(numerators, np.int64), denominator)
    above = np.minimum(below + 1, len(ordered) - 1)
    return np.asarray(ordered[below] + part / denominator * (ordered[above] - ordered[below]), np.float64)


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


def defined(value: float) -> float | None:
    """Return a number, None for nan."""
    return None if np.isnan(value) else float(value)


def agreement(score: Floats, result: Floats) -> Agreement:
    """Return agreement of ``score`` (n,) with ``result`` (n,); undefined values (a constant side) are nan.

    tau-b = (C - D) / sqrt((n0 - n_x)(n0 - n_y)); tau_random_ties = (C - D) / sqrt(n0 (n0 - n_y)),
    with n0 all pairs, n_x and n_y the pairs tied in the score and in the result.
    """
    finite_pair(score, result)
    x, y = tie_ranks(score)[None], tie_ranks(result, 0.0)[None]
    n, difference, untied_x, untied_y = len(score), _concordance(x, y[0]), _untied(x), _untied(y)
    pairs = np.where(untied_x, n * (n - 1) // 2, 0)
    return Agreement(
        n=n,
        tau=float(correlation(difference, untied_x, untied_y)[0]),
        tau_random_ties=float(correlation(difference, pairs, untied_y)[0]),
        rho=float(_rho(x, y)[0]),
    )


def kendall(scores: Floats, result: Floats) -> Floats:
    """Return tau-b (m,) of ``scores`` (m, n) with one ``result`` (n,), nan where undefined."""
    x, y = _many(scores, result)
    return correlation(_concordance(x, y[0]), _untied(x), _untied(y))


def spearman(scores: Floats, result: Floats) -> Floats:
    """Return Spearman's rho (m,) of ``scores`` (m, n) with one ``result`` (n,), nan where undefined."""
    return _rho(*_many(scores, result))


def within_budget(score: Floats, result: Floats, cost: Floats | Ints, bins: int = 10) -> float:
    """Return tau-b between architectures of similar cost, nan where undefined; all vectors are (n,).

    ``bins`` quantile bins of the cost: the sum of C - D within bins over
    sqrt(sum of pairs untied in the score x sum of pairs untied in the result).
    """
    finite_pair(score, result, cost)
    x, y = tie_ranks(score)[None], tie_ranks(result, 0.0)[None]
    place = np.searchsorted(quantiles(cost, range(1, bins), bins), cost)
    sums = np.zeros(3, np.int64)
    for bin_ in np.unique(place):  # the ranks of a part keep the ties of the whole
        parts = (ranks[:, place == bin_] for ranks in (x, y))
        inside = [np.unique(part, return_inverse=True)[1].reshape(part.shape) for part in parts]
        sums += [_concordance(inside[0], inside[1][0])[0], *(_untied(ranks)[0] for ranks in inside)]
    return float(correlation(*sums[:, None])[0])


def _many(scores: Floats, result: Floats) -> tuple[Ints, Ints]:
    """Return ranks (m, n) of the scores and (1, n) of the result."""
    for score in scores:
        finite_pair(score, result)
    return tie_ranks(scores), tie_ranks(result, 0.0)[None]


def _untied(ranks: Ints) -> Ints:
    """Return the pairs (m,) that ranks (m, n) do not tie."""
    n, sizes = ranks.shape[1], tie_sizes(ranks)
    return np.asarray(n * (n - 1) // 2 - np.sum(sizes * (sizes - 1) // 2, axis=1))


def _concordance(x: Ints, y: Ints) -> Ints:
    """Return concordant minus discordant pairs (m,) of ranks x (m, n) and y (n,)."""
    n = len(y)
    narrow = x.astype(np.int16 if n < 1 << 15 else np.int32)
    excess = np.zeros(len(x), np.int64)
    step = max(1, CELLS // max(n, 1))
    for start in range(0, n, step):
        rows = slice(start, start + step)
        above = y[rows, None] > y
        for i, ranks in enumerate(narrow):
            rank = ranks[rows, None]
            excess[i] += np.count_nonzero((rank > ranks) & above) - np.count_nonzero((rank < ranks) & above)
    return excess


def _rho(x: Ints, y: Ints) -> Floats:
    """Return Pearson's correlation (m,) of the average ranks of x (m, n) with those of y (1, n)."""
    a, b = _centred(x), _centred(y)
    return correlation(np.sum(a * b, axis=1), np.sum(a * a, axis=1), np.sum(b * b, axis=1))


def _centred(ranks: Ints) -> Floats:
    """Return average ranks (m, n) minus their mean: half-integers, so sums of products are exact."""
    return np.asarray(average_ranks(ranks) - (ranks.shape[1] + 1) / 2.0)
