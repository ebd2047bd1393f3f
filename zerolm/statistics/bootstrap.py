"""Bootstrap intervals of rank agreement, by quadratic forms instead of resampled tables.

A resample of n architectures is a vector w of counts. With S_ij = sign(x_i - x_j) sign(y_i - y_j) its
concordant minus discordant pairs are w^T S w / 2, for all resamples at once one matrix product. The copies of
one architecture are not compared with each other: they would be ties without a measurement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Floats, Ints
from zerolm.statistics.correlations import Agreement, agreement, correlation, tie_ranks

EXACT_IN_SINGLE: Final = 1 << 24
"""Single precision holds every integer up to here; no sum below exceeds n^2."""
RESAMPLES: Final = 1000
"""Bootstrap resamples of a comparison unless another number is asked for."""
FEWEST: Final = 8
"""Architectures from which a percentile interval means something; resamples of fewer are too much alike."""


class Interval(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Resampled:
    """Agreement of one score: as observed, and in each resample, (draws,), nan where undefined."""

    observed: Agreement
    tau: Floats
    tau_random_ties: Floats
    rho: Floats


class Bootstrap:
    """Resamples of architectures, drawn once for a ``result`` (n,) and the same for every score.

    Because they are the same, differences between the scores' draws are paired. ``counts`` (n, draws)
    says how often each resample holds each architecture.
    """

    def __init__(self, result: Floats, draws: int = 1000, seed: int = 0) -> None:
        n = len(result)
        drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n), size=draws)
        exact = np.float32 if n * n <= EXACT_IN_SINGLE else np.float64
        self.result = result
        self.counts: NDArray[Any] = np.ascontiguousarray(drawn.T, exact)
        self._pairs = (n * n - np.sum(drawn**2, axis=1)) / 2.0
        ranks = tie_ranks(result, 0.0)
        self._signs = _signs(ranks, exact)
        self._untied, centred, self._square = self._ranked(ranks)
        self._weighted = self.counts * centred

    def resample(self, score: Floats) -> Resampled:
        """Return tau-b, tau with random ties and rho of ``score`` (n,) in each resample."""
        observed = agreement(score, self.result)
        ranks = tie_ranks(score)
        signs = _signs(ranks, self.counts.dtype) * self._signs
        difference = np.einsum("id,id->d", self.counts, signs @ self.counts) / 2.0
        untied, centred, square = self._ranked(ranks)
        return Resampled(
            observed,
            tau=correlation(difference, untied, self._untied),
            tau_random_ties=correlation(difference, np.where(untied > 0, self._pairs, 0.0), self._untied),
            rho=correlation(np.einsum("id,id->d", self._weighted, centred), square, self._square),
        )

    def _ranked(self, ranks: Ints) -> tuple[Floats, Floats, Floats]:
        """Return pairs not tied (draws,), centred average ranks (n, draws) and their squares' sum."""
        n = len(ranks)
        starts = np.flatnonzero(np.diff(np.sort(ranks), prepend=-1))
        sizes = np.add.reduceat(self.counts[np.argsort(ranks, kind="stable")], starts, axis=0)
        untied = (n * n - np.sum(sizes * sizes, axis=0, dtype=np.float64)) / 2.0
        centred = np.cumsum(sizes, axis=0, dtype=np.float64) - (sizes + n) / 2.0
        square = np.einsum("gd,gd,gd->d", sizes, centred, centred)
        return np.asarray(untied), np.asarray(centred[ranks]), np.asarray(square)


def enough(n: int, draws: int) -> int:
    """Return how often to resample n architectures for intervals: never, where they are too few for any."""
    return draws if n >= FEWEST else 0


def interval(values: Floats, level: float = 0.95) -> Interval:
    """Return the percentile interval that holds ``level`` of the values (draws,), nan left out."""
    defined = values[~np.isnan(values)]
    if not len(defined):
        return Interval(float("nan"), float("nan"))
    low, high = np.quantile(defined, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return Interval(float(low), float(high))


def gain(a: Resampled, b: Resampled) -> tuple[float, float, float]:
    """Return the tau-b of ``a`` minus that of ``b``, with its paired interval: (gain, low, high).

    Both must come from one ``Bootstrap``.
    """
    return a.observed.tau - b.observed.tau, *interval(a.tau - b.tau)


def _signs(ranks: Ints, dtype: Any) -> NDArray[Any]:
    """Return sign(r_i - r_j), (n, n)."""
    narrow = ranks.astype(np.int32)
    return np.asarray(np.sign(narrow[:, None] - narrow), dtype)
