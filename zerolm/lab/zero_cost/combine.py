"""Numbers of proxies put together: ranks merged over a pool, and L-SWAG from its layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.statistics import TOLERANCE, tie_ranks
from zerolm.statistics.correlations import average_ranks

BINS = 10
"""L-SWAG compares layers of networks of different depth by tenths of the depth."""


def rank_product(terms: Floats) -> Floats:
    """AZ-NAS's sum of log ranks, sum_k log(rank_k / m), of k proxies and m candidates (arXiv 2403.19232).

    ``terms`` is (k, m), higher is better; the result (m,) is at most 0, which a candidate has that every
    proxy puts first. Rank 1 is the worst and ties share their average, so one proxy that finds a candidate
    very bad costs more than the others can win.
    """
    ranks = average_ranks(tie_ranks(terms))
    return np.asarray(np.sum(np.log(ranks / ranks.shape[1]), axis=0))


def select_layers(log_sigma: Sequence[Floats], threshold: float = 0.5) -> tuple[int, int]:
    """The first and the last bin of depth that L-SWAG looks at (arXiv 2505.07300, eq. 6), without labels.

    ``log_sigma`` holds, of each network of a sample of the space, the mean log standard deviation of the
    gradients in its layers, (L,). Layer l, counted from 0, is in bin floor(10 l / L); a bin's value is
    the mean over all layers of all networks in it. The paper takes the bins where that has its spike by
    eye; here it is the longest run of bins with a z-score above ``threshold`` that holds the highest bin.
    A bin without layers (all networks are shallow) does not end a run. Where no bin stands out it is all.
    """
    values = np.concatenate(log_sigma)
    place = np.concatenate([_bins(len(layers)) for layers in log_sigma])
    occupied, inverse, size = np.unique(place, return_inverse=True, return_counts=True)
    means = np.bincount(inverse, values) / size
    spread, close = np.std(means), TOLERANCE * np.max(np.abs(means))
    high = means - np.mean(means) > threshold * spread
    if spread <= close or not high.any():
        return 0, BINS - 1
    runs = [[i for i, _ in run] for above, run in groupby(enumerate(high), key=lambda item: item[1]) if above]
    peaks = [(occupied[run[0]], occupied[run[-1]]) for run in runs if max(means[run]) >= max(means) - close]
    first, last = max(peaks, key=lambda peak: peak[1] - peak[0])
    return int(first), int(last)


def layers_in(selected: tuple[int, int], depth: int) -> list[int]:
    """The layers of a network of ``depth`` in the bins from the first to the last, both included.

    Where there is none, those whose bins are nearest: at least one, and always without a gap.
    """
    place = _bins(depth)
    away = np.maximum(np.maximum(selected[0] - place, place - selected[1]), 0)
    return [int(layer) for layer in np.flatnonzero(away == np.min(away))]


def _bins(depth: int) -> Ints:
    """The bin of each layer, (depth,); in integers, so that no layer on an edge falls below it."""
    return np.arange(depth, dtype=np.int64) * BINS // depth


def occurrences(codes: Sequence[Ints]) -> Ints:
    """Where the activation codes of each layer were last seen before it, (L + 1, L).

    ``codes`` are those of layer l in any order, with repeats. Entry [p, l] counts the distinct codes of
    layer l that an earlier layer has too, p - 1 being the last such layer, or that none has, for p = 0.
    """
    depth = len(codes)
    layer = np.repeat(np.arange(depth), [len(of_layer) for of_layer in codes])
    every = np.concatenate([np.zeros(0, np.int64), *codes])
    order = np.argsort(every, kind="stable")  # the layers of a code stay in order
    every, layer = every[order], layer[order]
    again = every[1:] == every[:-1]
    before = np.zeros(len(every), np.int64)
    before[1:] = np.where(again, layer[:-1] + 1, 0)
    distinct = before <= layer  # else it is a repeat within its layer
    cells = before[distinct] * depth + layer[distinct]
    return np.bincount(cells, minlength=(depth + 1) * depth).reshape(depth + 1, depth)


def lswag(gradients: Floats, fresh: Ints, layers: Sequence[int]) -> float:
    """L-SWAG, Lambda x Psi of an interval of layers (arXiv 2505.07300, eq. 5 to 8).

    ``gradients`` (L,) is log sum_w 1 / sigma_w of each layer and Lambda its sum; Psi is the number of
    different activation codes in all of these layers together, from the ``occurrences`` (L + 1, L): code
    by code, its first layer of the interval counts.
    """
    first, last = min(layers), max(layers)
    psi = np.sum(fresh[: first + 1, first : last + 1])
    return float(np.sum(gradients[first : last + 1]) * psi)
