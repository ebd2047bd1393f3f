"""The noise ceiling: what a perfect predictor can reach against results of one noisy run each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.statistics.correlations import TOLERANCE, kendall, spearman

DRAWS: Final = 200
NEIGHBOURS: Final = 50
"""Repeated runs from which the noise of an architecture is sampled; the ceiling hardly depends on it."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The agreement of a perfect predictor with noisy results, and what it was estimated from.

    ``deviation`` is the standard deviation of a run about its network's mean, pooled, in the unit of
    the result; ``networks`` are those that were trained more than once, ``runs`` their results.
    """

    tau: float
    rho: float
    deviation: float
    networks: int
    runs: int


def noise_ceiling(result: Floats, repeats: Ints) -> Ceiling | None:
    """Return mean tau-b and rho of the noise-free quality with noisy results; None without repeats.

    ``result`` (n,) is one run each; runs of identical networks share a label in ``repeats`` (n,). The quality
    of a network is the mean of its runs, shrunk so that quality plus noise has the variance of the results.
    Noise is sampled from the residuals of the ``NEIGHBOURS`` repeated runs of the most similar mean, not from
    one Gaussian: failed runs are rare, large, and befall poor networks, so a pooled deviation would put the
    ceiling below what real scores reach.
    """
    network, size = np.unique(repeats, return_inverse=True, return_counts=True)[1:]
    mean = (np.bincount(network, result) / size)[network]
    repeated = size[network] > 1
    runs, networks = int(np.sum(repeated)), int(np.sum(size > 1))
    if not runs:
        return None
    off = np.where(np.abs(result - mean) > TOLERANCE * np.abs(mean), result - mean, 0.0)
    # A mean follows its runs: of n residuals only n - 1 are free.
    noise = (off * np.sqrt(size / np.maximum(size - 1, 1))[network])[repeated]
    pools = _nearest(mean, mean[repeated], noise)
    quality = _shrunk(mean, float(np.var(result)) - float(np.mean(pools**2)))
    chosen = np.random.default_rng(0).integers(pools.shape[1], size=(DRAWS, len(result)))
    noisy = quality + pools[np.arange(len(result)), chosen]
    return Ceiling(
        tau=_mean(kendall(noisy, quality)),
        rho=_mean(spearman(noisy, quality)),
        deviation=float(np.sqrt(np.sum(off[repeated] ** 2) / (runs - networks))),
        networks=networks,
        runs=runs,
    )


def _nearest(means: Floats, centres: Floats, values: Floats) -> Floats:
    """Return the values (n, k) of the centres about the place of each mean (n,) in their order."""
    order = np.argsort(centres, kind="stable")
    k = min(NEIGHBOURS, len(centres))
    place = np.searchsorted(centres[order], means)
    first = np.clip(place - k // 2, 0, len(centres) - k)
    return np.asarray(values[order][first[:, None] + np.arange(k)])


def _shrunk(values: Floats, variance: float) -> Floats:
    """Return values (n,) drawn towards their mean until they have at most this variance."""
    centre, spread = float(np.mean(values)), float(np.var(values))
    variance = max(variance, 0.0)
    factor = np.sqrt(variance / spread) if spread > variance else 1.0
    return np.asarray(centre + factor * (values - centre))


def _mean(values: Floats) -> float:
    """Return the mean over draws; nothing to predict is an agreement of 0."""
    return float(np.mean(np.nan_to_num(values)))
