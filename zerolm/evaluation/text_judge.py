"""The judge: what readers predict or embed of a text, compared with the parent, however they are run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.checkpoints.sentence_settings import COSINE
from zerolm.evaluation.evaluated import TextMeasures, Values
from zerolm.evaluation.loops import Prompts
from zerolm.evaluation.neighbours import (
    embedding_measures,
    first_of_each,
    numbered,
    similarity_within,
    spearmans,
)
from zerolm.evaluation.readers import Reader
from zerolm.passes.divergence import perplexity
from zerolm.passes.outputs import SPANS
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens

RUNNING: Final = "running the text through all networks"
SENTENCES: Final = 32
"""Sentences of a passage."""


@dataclass(frozen=True, eq=False)
class JudgedPassages:
    """Passages of a text by domain, with an empty name for one text, that decoders predict.

    ``bytes`` are those of the text where each network has tokens of its own: surprise is then in bits a byte.
    All networks answer the ``prompts``, if any.
    """

    passages: Mapping[str, Sequence[Any]]
    bytes: int = 0
    prompts: Prompts | None = None

    def measures(self, readers: Sequence[Reader], progress: Progress = silent) -> list[TextMeasures]:
        """Return ``perplexity`` or ``bits``, ``kl`` and the share of answers that are ``loops``."""
        sums, counts = self.nats(readers, progress)
        rows = [
            self._of({domain: (sums[domain][at], counts[domain][at]) for domain in sums})
            for at in range(len(readers))
        ]
        if self.prompts is None:
            return rows
        shares = self.prompts.shares([reader.network for reader in readers], progress)
        pairs = zip(rows, shares, strict=True)
        return [replace(row, values={**row.values, "loops": share}) for row, share in pairs]

    def nats(
        self, readers: Sequence[Reader], progress: Progress = silent
    ) -> tuple[dict[str, Floats], dict[str, Ints]]:
        """Return nats of surprise and of divergence by domain, (readers, spans, 2), and their numbers."""
        shape = len(readers), len(SPANS), 2
        sums = {domain: np.zeros(shape) for domain in self.passages}
        counts = {domain: np.zeros(shape, np.int64) for domain in self.passages}
        several = [(domain, passage) for domain, each in self.passages.items() for passage in each]
        for number, (domain, passage) in enumerate(several):
            progress(RUNNING, number, len(several))
            parent = readers[0].predictions(passage)
            for at, reader in enumerate(readers):
                nats, predicted = (reader.predictions(passage) if at else parent).nats(parent)
                sums[domain][at] += nats
                counts[domain][at] += predicted
        return sums, counts

    def _of(self, domains: Mapping[str, tuple[Floats, Ints]]) -> TextMeasures:
        """Return the measures of a network by its nats (spans, 2) and their numbers (spans, 2)."""
        nats, counts = (np.sum(column, axis=0) for column in zip(*domains.values(), strict=True))
        if self.bytes:
            surprise, divergence = nats.sum(0).tolist()
            kl = divergence / max(1, int(counts[:, 1].sum()))
            return TextMeasures({"bits": surprise / math.log(2) / self.bytes, "kl": kl})
        return TextMeasures(
            _by_token(nats, counts),
            {name: _by_token(*each) for name, each in domains.items() if name},
            {span: float(nats[at, 1] / counts[at, 1]) for at, span in enumerate(SPANS) if counts[at, 1]},
        )


def _by_token(nats: Floats, counts: Ints) -> Values:
    surprise, kl = (nats.sum(0) / counts[:, 0].sum()).tolist()
    return {"perplexity": perplexity(surprise), "kl": kl}


@dataclass(frozen=True, eq=False)
class Sentences:
    """Passages of sentences that encoders embed; ``order`` (n,) are their numbers there.

    Equal sentences have equal ``contents`` (n,), in the order of the text.
    """

    passages: Sequence[Any]
    order: Ints
    contents: Ints

    @classmethod
    def of_tokens(cls, tokens: Tokens) -> Sentences:
        """Return sentences in batches of tokens, the shortest first, so that they pad little."""
        order = tokens.shortest_first()
        return cls(tokens.rows(order).batches(SENTENCES), order, numbered(tokens))

    @classmethod
    def of_lines(cls, lines: Sequence[str]) -> Sentences:
        """Return sentences in lists of lines."""
        passages = [lines[first : first + SENTENCES] for first in range(0, len(lines), SENTENCES)]
        return cls(passages, np.arange(len(lines)), np.unique(lines, return_inverse=True)[1])

    def embedded(self, readers: Sequence[Reader], progress: Progress = silent) -> list[Floats]:
        """Return embeddings (n, d) by each reader, in the order of the text."""
        parts = list[list[Floats]]()
        for number, passage in enumerate(self.passages):
            progress(RUNNING, number, len(self.passages))
            parts.append([reader.embeddings(passage).double().numpy() for reader in readers])
        places = np.argsort(self.order)
        return [np.concatenate(column)[places] for column in zip(*parts, strict=True)]


@dataclass(frozen=True, eq=False)
class JudgedSentences:
    """Sentences that encoders are judged by, and ``pairs`` of others with their scores, if any.

    ``domains`` are the numbers of sentences of each domain, one after another; there are none of one text.
    ``pairs`` are the first sentences of all pairs, then the second ones. Neighbours and pairs
    go ``by`` a similarity.
    """

    sentences: Sentences
    domains: Mapping[str, int] = field(default_factory=dict)
    pairs: Sentences | None = None
    scores: tuple[float, ...] = ()
    by: str = COSINE

    def measures(self, readers: Sequence[Reader], progress: Progress = silent) -> list[TextMeasures]:
        """Return ``embedding_measures``, and Spearman's rho of similarities within ``pairs`` with scores."""
        parent_embeddings, *_ = every = self.sentences.embedded(readers, progress)
        ends = np.cumsum(list(self.domains.values()), dtype=np.int64).tolist()
        counted = zip(self.domains.items(), ends, strict=True)
        parts = {name: np.arange(end - count, end) for (name, count), end in counted}
        whole = np.arange(len(parent_embeddings))
        rows = [self._compared(embeddings, parent_embeddings, whole) for embeddings in every]
        if self.pairs is not None:
            for row, embeddings in zip(rows, self.pairs.embedded(readers, progress), strict=True):
                first, second = np.split(embeddings, 2)
                alike = similarity_within(first, second, self.by)
                row["pairs"] = float(spearmans(alike[None], np.array([self.scores]))[0])
        measures = []
        for row, embeddings in zip(rows, every, strict=True):
            domains = {name: self._compared(embeddings, parent_embeddings, p) for name, p in parts.items()}
            measures.append(TextMeasures(row, domains))
        return measures

    def _compared(self, embeddings: Floats, parent_embeddings: Floats, part: Ints) -> dict[str, float]:
        """Return the measures of embeddings (n, d) of some sentences compared with the parent's."""
        distinct = first_of_each(self.sentences.contents[part])
        return embedding_measures(embeddings[part], parent_embeddings[part], distinct, self.by)
