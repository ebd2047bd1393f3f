"""Ranks that respect ties, quantiles, and checks, for all of these statistics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zerolm.architecture import Floats, Ints

TOLERANCE = 1e-9
"""Scores that differ by less, relatively, are equal: floating point must not break a tie."""


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
