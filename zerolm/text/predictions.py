"""Texts as networks are trained on them: sequences, and what is to be predicted of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from torch import Tensor
from torch.utils.data import Dataset

from zerolm.networks.batch import NOTHING
from zerolm.networks.network import Task
from zerolm.text.batches import masked
from zerolm.text.corpus import Corpus, Sequences

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
