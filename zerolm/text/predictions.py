"""Texts as networks of a space are trained on them: tokens of a tokenizer of their own, and labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from zerolm.networks.batch import NOTHING
from zerolm.networks.network import Task
from zerolm.text.batches import MASK, PIECE, TRAINED_ON, masked, trained_tokenizer
from zerolm.text.corpus import Corpus, Sequences
from zerolm.text.documents import documents

ORDERS: Final = 32
"""Bits of a place in an order; the seed of a mask is that of the order, from 1, and the place."""


def tokenizer_of(source: str, vocabulary: int) -> PreTrainedTokenizerBase:
    """Return a byte-level BPE trained on the first 16 Mi characters of a text, of at most so many ids."""
    trained = trained_tokenizer(beginning(source), vocabulary)
    made: PreTrainedTokenizerBase = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=trained, mask_token=MASK, split_special_tokens=True
    )
    return made


def beginning(source: str) -> Iterator[str]:
    """Yield the documents of a text in pieces, 16 Mi characters at most."""
    left = TRAINED_ON
    for document in documents(source):
        content = document.content[:left]
        left -= len(content)
        yield from (content[start : start + PIECE] for start in range(0, len(content), PIECE))
        if not left:
            return


class Predictions(Dataset[dict[str, Tensor]]):
    """Sequences of a text in an order fixed by a seed, with what is to be predicted of them.

    Every item has ``input_ids`` and ``labels`` (length,): the next token (``next``), or of 15 % that ``mask``
    stands for the token itself (``masked``), drawn anew at every place of the order: never what begins and
    ends a sequence, and with a ``vocabulary`` as BERT does it.
    """

    def __init__(
        self, corpus: Corpus, count: int, seed: int, task: Task, mask: int, vocabulary: int = 0
    ) -> None:
        self.sequences, self.seed, self.task, self.mask = Sequences(corpus, count, seed), seed, task, mask
        self.vocabulary, self.edges = vocabulary, (len(corpus.start), len(corpus.end))

    def __len__(self) -> int:
        return len(self.sequences)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        ids = self.sequences[place]["input_ids"]
        drawn = (self.seed + 1 << ORDERS) + place
        inputs, labels = predicted(ids[None], self.task, self.mask, drawn, self.vocabulary, self.edges)
        return {"input_ids": inputs[0], "labels": labels[0]}


def predicted(
    ids: Tensor,
    task: Task,
    mask: int,
    seed: int = 0,
    vocabulary: int = 0,
    edges: tuple[int, int] = (0, 0),
) -> tuple[Tensor, Tensor]:
    """Return inputs and labels (n, t) of sequences (n, t): the next token, or those masked under the seed."""
    if task == "masked":
        return masked(ids, mask, seed, vocabulary, edges)
    labels = ids.roll(-1, dims=1)
    labels[:, -1] = NOTHING
    return ids, labels
