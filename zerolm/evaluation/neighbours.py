"""Embeddings of sentences compared with the parent's: cosine, order of neighbours, and nearest neighbours."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from scipy.spatial.distance import cdist
from scipy.stats import rankdata

from zerolm.architecture import Floats, Ints
from zerolm.checkpoints.sentence_settings import COSINE
from zerolm.networks.pooling import cosine_distances
from zerolm.text.tokens import Tokens

LEAST: Final = 3
"""Sentences that have an order of neighbours at least: one and two others."""
MOST: Final = 4096
"""Sentences that are compared with one another at most, evenly from all."""
ROWS: Final = 512
"""Sentences whose neighbours are ordered at a time."""
SHORTEST: Final = 1e-30
DISTANCES: Final = {"euclidean": 2, "manhattan": 1}
"""The similarities that are distances with a minus, by the exponent of their norm."""


def embedding_measures(
    embeddings: Floats, reference: Floats, distinct: Ints, by: str = COSINE
) -> dict[str, float]:
    """Return the measures of embeddings (n, d) compared with the parent's (n, d).

    These are the mean ``cosine`` and the ``distance``, 1 less that; where at least ``LEAST`` sentences are
    ``distinct``, by their numbers, ``order`` and ``nearest`` of these (``neighbourhood``).
    """
    distance = float(cosine_distances(*map(torch.from_numpy, (embeddings, reference))).mean())
    measures = {"cosine": 1.0 - distance, "distance": distance}
    if len(distinct) >= LEAST:
        order, nearest = neighbourhood(embeddings[distinct], reference[distinct], by)
        measures |= {"order": order, "nearest": nearest}
    return measures


def unit(embedding: Floats) -> Floats:
    """Return embeddings (n, d) over their lengths."""
    lengths: Floats = np.maximum(np.linalg.norm(embedding, axis=1, keepdims=True), SHORTEST)
    return np.asarray(embedding / lengths, np.float64)


def neighbourhood(embeddings: Floats, reference: Floats, by: str = COSINE) -> tuple[float, float]:
    """Return how embeddings (n, d) order one another as the parent's (n, d) do, ``by`` a similarity.

    First Spearman's rho of each sentence's similarities to all others, the mean over sentences; then the
    share of sentences whose nearest is one that the parent has nearest. Of many sentences some are taken.
    """
    count = min(len(reference), MOST)
    chosen = np.arange(count) * len(reference) // count
    embeddings, reference = (
        unit(each[chosen]) if by == COSINE else each[chosen] for each in (embeddings, reference)
    )
    rhos, nearest = list[Floats](), 0
    for first in range(0, count, ROWS):
        rows = np.arange(first, min(first + ROWS, count))
        a, b = (_similarities(one, rows, by) for one in (embeddings, reference))
        rhos.append(spearmans(a, b))
        nearest += int((b[np.arange(len(rows)), a.argmax(1)] == b.max(1)).sum())
    return float(np.concatenate(rhos).mean()), nearest / count


def similarity_within(first: Floats, second: Floats, by: str = COSINE) -> Floats:
    """Return the similarities of embeddings (n, d) to those of the same number, (n,)."""
    if by in DISTANCES:
        return np.asarray(-np.linalg.norm(first - second, ord=DISTANCES[by], axis=1), np.float64)
    first, second = (unit(each) if by == COSINE else each for each in (first, second))
    return np.asarray((first * second).sum(1), np.float64)


def _similarities(embedding: Floats, rows: Ints, by: str) -> Floats:
    """Return the similarities of some sentences to all others, (r, n - 1); by cosine of those of length 1."""
    if by in DISTANCES:
        every: Floats = -cdist(embedding[rows], embedding, "minkowski", p=DISTANCES[by])
    else:
        every = embedding[rows] @ embedding.T
    others = rows[:, None] != np.arange(len(embedding))
    return np.asarray(every[others].reshape(len(rows), -1), np.float64)


def spearmans(first: Floats, second: Floats) -> Floats:
    """Return Spearman's rho of each row of (m, n) with that of another, with mean ranks; 0 of a constant."""
    a, b = (rankdata(values, axis=1) for values in (first, second))
    a, b = (ranks - ranks.mean(1, keepdims=True) for ranks in (a, b))
    norm = np.sqrt(np.square(a).sum(1) * np.square(b).sum(1))
    return np.asarray((a * b).sum(1) / np.where(norm > 0, norm, 1.0), np.float64)


def first_of_each(sentences: Ints) -> Ints:
    """Return the places of sentences by their numbers (n,) without those that come again."""
    return np.sort(np.unique(sentences, return_index=True)[1])


def numbered(tokens: Tokens) -> Ints:
    """Return a number for each sequence, (n,), the same for equal ones."""
    ids = tokens.ids if tokens.mask is None else tokens.ids.masked_fill(tokens.mask == 0, -1)
    return np.unique(ids.numpy(), axis=0, return_inverse=True)[1].reshape(-1)
