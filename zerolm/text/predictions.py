"""Texts as networks are trained on them: sequences, and what is to be predicted of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.data import Dataset

from zerolm.networks.batch import NOTHING
from zerolm.networks.network import Task
from zerolm.text.corpus import Corpus, Sequences

MASKED: Final = 0.15
"""The part of a sequence that is masked, as in BERT."""
REPLACED: Final = 0x5EED
"""Distinguishes the seed of replacements from that of the positions."""
ORDERS: Final = 32
"""Bits of a place in an order; the seed of a mask is that of the order, from 1, and the place."""


@dataclass(frozen=True, eq=False)
class PredictedText:
    """A text in sequences, and what networks learn to predict of it: the next token, or masked ones.

    ``mask`` stands for a masked token; with a ``vocabulary`` only for 80 % of them, as in BERT.
    """

    corpus: Corpus
    task: Task
    mask: int
    vocabulary: int

    @property
    def sha256(self) -> str:
        return self.corpus.sha256

    def data(self, count: int, seed: int) -> Predictions:
        """Return ``count`` sequences to train on, in the order of the seed, with their labels."""
        return Predictions(self, count, seed)

    @property
    def held_ids(self) -> Tensor:
        """Return the sequences (n, t) that are never trained on."""
        return self.corpus.held_out().ids

    @cached_property
    def held_out(self) -> tuple[Tensor, Tensor]:
        """Return inputs and labels (n, t) of what is never trained on; all that is predicted is masked."""
        return predicted(self.held_ids, self.task, self.mask, edges=self.edges)

    @property
    def edges(self) -> tuple[int, int]:
        """The numbers of tokens that begin and end a sequence."""
        return len(self.corpus.start), len(self.corpus.end)


class Predictions(Dataset[dict[str, Tensor]]):
    """Sequences of a text in an order fixed by a seed, with what is to be predicted of them.

    Every item has ``input_ids`` and ``labels`` (length,): the next token (``next``), or of 15 % that the mask
    stands for the token itself (``masked``), sampled anew at every place of the order: never the tokens that
    begin and end a sequence, and with a vocabulary as BERT does it.
    """

    def __init__(self, text: PredictedText, count: int, seed: int) -> None:
        self.text, self.sequences, self.seed = text, Sequences(text.corpus, count, seed), seed

    def __len__(self) -> int:
        return len(self.sequences)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        ids, text = self.sequences[place]["input_ids"], self.text
        drawn = (self.seed + 1 << ORDERS) + place
        inputs, labels = predicted(ids[None], text.task, text.mask, drawn, text.vocabulary, text.edges)
        return {"input_ids": inputs[0], "labels": labels[0]}


def predicted(
    ids: Tensor, task: Task, mask: int, seed: int = 0, vocabulary: int = 0, edges: tuple[int, int] = (0, 0)
) -> tuple[Tensor, Tensor]:
    """Return inputs and labels (n, t) of sequences (n, t): the next token, or those masked under the seed."""
    if task == "masked":
        return masked(ids, mask, seed, vocabulary, edges)
    labels = ids.roll(-1, dims=1)
    labels[:, -1] = NOTHING
    return ids, labels


def masked(
    tokens: Tensor, mask: int, seed: int, vocabulary: int = 0, edges: tuple[int, int] = (0, 0)
) -> tuple[Tensor, Tensor]:
    """Return inputs and labels (n, t): round(.15 t) positions of each sequence, at least one, are masked.

    They are sampled under the seed; the labels of all others are ``NOTHING``. With a ``vocabulary`` only four
    of five, as sampled, are masked; of the others half get a random token below it, half stay as they are
    (BERT, arXiv 1810.04805, section 3.1). None is sampled from the ``edges``: the numbers of tokens at the
    beginning and at the end of each sequence.
    """
    first, last = edges
    body = tokens[:, first : tokens.shape[1] - last]
    hidden = pad(_chosen(body, max(1, round(MASKED * tokens.shape[1])), seed), edges)
    labels = tokens.masked_fill(~hidden, NOTHING)
    if not vocabulary:
        return tokens.masked_fill(hidden, mask), labels
    generator = torch.Generator().manual_seed(seed ^ REPLACED)
    share = torch.rand(tokens.shape, generator=generator)
    others = torch.randint(vocabulary, tokens.shape, generator=generator)
    inputs = tokens.masked_fill(hidden & (share < 0.8), mask)
    return torch.where(hidden & (share >= 0.9), others, inputs), labels


def _chosen(tokens: Tensor, count: int, seed: int) -> Tensor:
    drawn = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(seed))
    order = drawn.argsort(stable=True, dim=1)
    return torch.zeros_like(tokens, dtype=torch.bool).scatter_(1, order[:, :count], True)
