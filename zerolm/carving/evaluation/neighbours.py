"""Embeddings of sentences beside the parent's: how near, in which order others follow, and who is nearest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from scipy.stats import rankdata
from transformers import PreTrainedModel

from zerolm.architecture import Floats, Ints
from zerolm.carving.evaluation.divergence import RUNNING, Made, embeddings
from zerolm.carving.evaluation.evaluated import TextMeasures
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
        rho of the similarity within each with its score. Neighbours of a domain are of that domain.
        """
        theirs, *ours = embedded(models, parent, self.tokens, pooling, progress)
        every, parts = np.arange(len(self.tokens)), self.parts()
        rows = [self._beside(one, theirs, every) for one in (theirs, *ours)]
        if self.pairs is not None:
            scores = np.array(self.scores)
            for row, one in zip(rows, embedded(models, parent, self.pairs, pooling, progress), strict=True):
                first, second = np.split(one, 2)
                row["pairs"] = float(spearmans((first * second).sum(1)[None], scores[None])[0])
        return [
            TextMeasures(row, {name: self._beside(one, theirs, part) for name, part in parts.items()})
            for row, one in zip(rows, (theirs, *ours), strict=True)
        ]

    def parts(self) -> dict[str, Ints]:
        """Return the numbers of the sentences of each domain."""
        ends = np.cumsum(list(self.domains.values()), dtype=np.int64).tolist()
        counted = zip(self.domains.items(), ends, strict=True)
        return {name: np.arange(end - count, end) for (name, count), end in counted}

    def _beside(self, ours: Floats, theirs: Floats, part: Ints) -> dict[str, float]:
        """Return the measures of embeddings (n, d) of some sentences beside the parent's."""
        row, distinct = beside(ours[part], theirs[part]), part[distinct_rows(self.tokens.rows(part))]
        if len(distinct) >= LEAST:
            order, nearest = neighbourhood(ours[distinct], theirs[distinct])
            row |= {"order": order, "nearest": nearest}
        return row


def embedded(
    models: Sequence[Made],
    parent: PreTrainedModel,
    tokens: Tokens,
    pooling: TokenPooling,
    progress: Progress = silent,
) -> list[Floats]:
    """Return embeddings of length 1 (n, d) by the parent, then by each model, made once a batch."""
    batches, parts = tokens.batches(BATCH), list[list[Floats]]()
    for number, inputs in enumerate(batches):
        progress(RUNNING, number, len(batches))
        networks = (parent, *(make() for make in models))
        parts.append([_unit(embeddings(network, inputs, pooling)) for network in networks])
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _unit(embedding: torch.Tensor) -> Floats:
    values: Floats = embedding.double().numpy()
    values /= np.maximum(np.linalg.norm(values, axis=1, keepdims=True), SHORTEST)
    return values


def beside(ours: Floats, theirs: Floats) -> dict[str, float]:
    """Return the mean cosine of embeddings of length 1 (n, d) to the parent's, and the mean of 1 less it."""
    distance = float(np.square(ours - theirs).sum(1).mean() / 2)  # exactly 0 of the parent
    return {"cosine": 1.0 - distance, "distance": distance}


def neighbourhood(ours: Floats, theirs: Floats) -> tuple[float, float]:
    """Return how embeddings of length 1 (n, d) order one another as the parent's (n, d) do.

    First Spearman's rho of each sentence's similarities to all others, the mean over sentences; then the
    share of sentences whose nearest is one that the parent has nearest. Of many sentences some are taken.
    """
    count = min(len(theirs), MOST)
    chosen = np.arange(count) * len(theirs) // count
    ours, theirs = ours[chosen], theirs[chosen]
    rhos, nearest = list[Floats](), 0
    for first in range(0, count, ROWS):
        rows = np.arange(first, min(first + ROWS, count))
        a, b = (_similarities(one, rows) for one in (ours, theirs))
        rhos.append(spearmans(a, b))
        nearest += int((b[np.arange(len(rows)), a.argmax(1)] == b.max(1)).sum())
    return float(np.concatenate(rhos).mean()), nearest / count


def _similarities(embedding: Floats, rows: Ints) -> Floats:
    """Return the similarities of some sentences to all others, (r, n - 1)."""
    every: Floats = embedding[rows] @ embedding.T
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
