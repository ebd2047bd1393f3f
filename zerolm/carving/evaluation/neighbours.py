"""Embeddings of sentences beside the parent's: how near, in which order others follow, and who is nearest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import rankdata
from transformers import PreTrainedModel

from zerolm.architecture import Floats, Ints
from zerolm.carving.evaluation.divergence import RUNNING, Made, embeddings
from zerolm.carving.evaluation.evaluated import TextMeasures
from zerolm.checkpoints.sentence_settings import COSINE
from zerolm.networks.pooling import TokenPooling
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens

BATCH: Final = 32
LEAST: Final = 3
"""Sentences that have an order of neighbours at least: one and two others."""
MOST: Final = 4096
"""Sentences that are compared with one another at most, evenly from all."""
ROWS: Final = 512
"""Sentences whose neighbours are ordered at a time."""
SHORTEST: Final = 1e-30
DISTANCES: Final = {"euclidean": 2, "manhattan": 1}
"""The similarities that are distances with a minus, by the exponent of their norm."""


@dataclass(frozen=True, eq=False)
class Judged:
    """Sentences that networks are judged by: their ``tokens``, and pairs of others with their scores, if any.

    ``domains`` are the numbers of sentences of each domain, one after another, none of one text. ``pairs``
    holds the first sentences of all pairs, and then the second ones.
    """

    tokens: Tokens
    pairs: Tokens | None = None
    scores: tuple[float, ...] = ()
    domains: Mapping[str, int] = field(default_factory=dict)

    def measures(
        self,
        models: Sequence[Made],
        parent: PreTrainedModel,
        pooling: TokenPooling,
        progress: Progress = silent,
    ) -> list[TextMeasures]:
        """Return the measures of the parent, then of each model.

        These are the mean ``cosine`` of embeddings to the parent's and the ``distance``, 1 less that; where
        there are sentences enough, ``order`` and ``nearest`` (``neighbourhood``); and with pairs Spearman's
        rho of the similarity within each with its score. Neighbours of a domain are of that domain. They and
        pairs go by the similarity of the ``pooling``.
        """
        theirs, *ours = embedded(models, parent, self.tokens, pooling, progress)
        every, parts, by = np.arange(len(self.tokens)), self.parts(), pooling.similarity
        rows = [self._beside(one, theirs, every, by) for one in (theirs, *ours)]
        if self.pairs is not None:
            scores = np.array(self.scores)
            for row, one in zip(rows, embedded(models, parent, self.pairs, pooling, progress), strict=True):
                first, second = np.split(one, 2)
                alike = similarity_within(first, second, by)
                row["pairs"] = float(spearmans(alike[None], scores[None])[0])
        return [
            TextMeasures(row, {name: self._beside(one, theirs, part, by) for name, part in parts.items()})
            for row, one in zip(rows, (theirs, *ours), strict=True)
        ]

    def parts(self) -> dict[str, Ints]:
        """Return the numbers of the sentences of each domain."""
        ends = np.cumsum(list(self.domains.values()), dtype=np.int64).tolist()
        counted = zip(self.domains.items(), ends, strict=True)
        return {name: np.arange(end - count, end) for (name, count), end in counted}

    def _beside(self, ours: Floats, theirs: Floats, part: Ints, by: str) -> dict[str, float]:
        """Return the measures of embeddings (n, d) of some sentences compared with the parent's."""
        row = beside(unit(ours[part]), unit(theirs[part]))
        distinct = part[distinct_rows(self.tokens.rows(part))]
        if len(distinct) >= LEAST:
            order, nearest = neighbourhood(ours[distinct], theirs[distinct], by)
            row |= {"order": order, "nearest": nearest}
        return row


def embedded(
    models: Sequence[Made],
    parent: PreTrainedModel,
    tokens: Tokens,
    pooling: TokenPooling,
    progress: Progress = silent,
) -> list[Floats]:
    """Return embeddings (n, d) by the parent, then by each model, made once a batch."""
    order, parts = tokens.shortest_first(), list[list[Floats]]()
    batches = tokens.rows(order).batches(BATCH)
    for number, inputs in enumerate(batches):
        progress(RUNNING, number, len(batches))
        networks = (parent, *(make() for make in models))
        parts.append([embeddings(network, inputs, pooling).double().numpy() for network in networks])
    places = np.argsort(order)
    return [np.concatenate(column)[places] for column in zip(*parts, strict=True)]


def unit(embedding: Floats) -> Floats:
    """Return embeddings (n, d) over their lengths."""
    lengths: Floats = np.maximum(np.linalg.norm(embedding, axis=1, keepdims=True), SHORTEST)
    return np.asarray(embedding / lengths, np.float64)


def beside(ours: Floats, theirs: Floats) -> dict[str, float]:
    """Return the mean cosine of embeddings of length 1 (n, d) to the parent's, and the mean of 1 less it."""
    distance = float(np.square(ours - theirs).sum(1).mean() / 2)  # exactly 0 of the parent
    return {"cosine": 1.0 - distance, "distance": distance}


def neighbourhood(ours: Floats, theirs: Floats, by: str = COSINE) -> tuple[float, float]:
    """Return how embeddings (n, d) order one another as the parent's (n, d) do, ``by`` a similarity.

    First Spearman's rho of each sentence's similarities to all others, the mean over sentences; then the
    share of sentences whose nearest is one that the parent has nearest. Of many sentences some are taken.
    """
    count = min(len(theirs), MOST)
    chosen = np.arange(count) * len(theirs) // count
    ours, theirs = (unit(each[chosen]) if by == COSINE else each[chosen] for each in (ours, theirs))
    rhos, nearest = list[Floats](), 0
    for first in range(0, count, ROWS):
        rows = np.arange(first, min(first + ROWS, count))
        a, b = (_similarities(one, rows, by) for one in (ours, theirs))
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


def spearmans(ours: Floats, theirs: Floats) -> Floats:
    """Return Spearman's rho of each row of (m, n) with that of another, with mean ranks; 0 of a constant."""
    a, b = (rankdata(values, axis=1) for values in (ours, theirs))
    a, b = (ranks - ranks.mean(1, keepdims=True) for ranks in (a, b))
    norm = np.sqrt(np.square(a).sum(1) * np.square(b).sum(1))
    return np.asarray((a * b).sum(1) / np.where(norm > 0, norm, 1.0), np.float64)


def distinct_rows(tokens: Tokens) -> Ints:
    """Return the numbers of the sequences without those that come again."""
    ids = tokens.ids if tokens.mask is None else tokens.ids.masked_fill(tokens.mask == 0, -1)
    return np.sort(np.unique(ids.numpy(), axis=0, return_index=True)[1])
