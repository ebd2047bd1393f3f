"""Batches for networks: sequences of tokens from a text or at random, or random images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedTokenizerBase

from zerolm.networks.batch import IMAGE, NOTHING, Batch
from zerolm.networks.network import Task
from zerolm.text.documents import Text
from zerolm.text.encoding import LEAST_IDS, TRAINED_ON, encoded, pieces, trained_tokenizer
from zerolm.text.sequences import cut, spread_evenly

MASKED: Final = 0.15
"""The part of a sequence that is masked, as in BERT."""
REPLACED: Final = 0x5EED
"""Distinguishes the seed of replacements from that of the positions."""


@dataclass(frozen=True, eq=False)
class TokenSource:
    """A stream of tokens that batches are cut from.

    ``ids`` is the tokenized text (N,), or None where tokens are sampled at random under ``seed``. Ids are
    below ``size``, of which ``least`` are needed at least. ``mask`` is the id that stands for a masked token.
    ``classes`` is what a batch's softmax runs over.
    """

    name: str
    ids: Tensor | None
    size: int
    least: int
    mask: int | None
    classes: int | None
    seed: int = 0

    def batch(self, task: Task, classes: int, sequences: int, length: int, seed: int) -> Batch:
        """A batch for a network of ``classes`` classes: ``sequences`` of ``length`` tokens, or images.

        Sequences are spread evenly over the text and do not overlap. ``next`` predicts every next token.
        ``masked`` replaces round(.15 length) positions of each sequence, at least one and drawn under
        ``seed``, by the mask and predicts these. ``image`` is Gaussian images (n, 3, 224, 224) and random
        labels under ``seed``, whatever the text. Raises ``ValueError`` where the text is too short, the
        network has fewer classes than there are tokens, or nothing can mask.
        """
        if sequences < 1 or length < 1:
            raise ValueError(f"a batch of {sequences} x {length} is empty; 1 x 1 is the least")
        if task == "image":
            return _images(classes, sequences, seed)
        if classes < self.size:
            possible = f"{self.least} to {classes} ids are possible"
            advice = possible if classes >= self.least else f"{self.least} ids are the least"
            raise ValueError(f"the network has {classes} tokens, the tokenizer {self.size}: {advice}")
        if task == "next":
            tokens = self._sequences(sequences, length, 1)  # (n, t + 1)
            return Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), self.classes, self.name)
        if self.mask is None:
            raise ValueError("the tokenizer has no mask token, and the network predicts masked ones")
        inputs, labels = masked(self._sequences(sequences, length, 0), self.mask, seed)
        return Batch(inputs, labels, self.classes, self.name)

    def _sequences(self, sequences: int, length: int, more: int) -> Tensor:
        """Tokens (n, length + more)."""
        span = length + more
        if self.ids is None:
            generator = torch.Generator().manual_seed(self.seed)
            return torch.randint(1, self.size, (sequences, span), generator=generator)
        count, needed = len(self.ids), sequences * span
        if count < needed:
            most = count // span
            shorter = count // sequences - more
            other = f"at most {most} sequences (--batch {most})" if most else f"--length {shorter} at most"
            other = other if most or shorter > 0 else "a smaller --batch and --length"
            raise ValueError(
                f"the text has {count} tokens, a batch of {sequences} x {length} needs {needed}: "
                f"give more text, or {other}"
            )
        return cut(self.ids.numpy(), spread_evenly(count, span, sequences), span)


def text_source(text: Text, vocabulary: int = 8192) -> TokenSource:
    """Tokens of a text, by a byte-level BPE trained on it (on at most its first 16 Mi characters).

    There are at most ``vocabulary`` ids, fewer where the text is too short for more; id 0 is the mask.
    The same text gives the same tokens everywhere. Raises ``ValueError`` below 257 ids.
    """
    tokenizer = trained_tokenizer(pieces(text.content[:TRAINED_ON]), vocabulary)
    size, ids = len(tokenizer), _in_pieces(tokenizer, text)
    return TokenSource(f"text sha256:{text.sha256}", ids, size, LEAST_IDS, mask=0, classes=size)


def stock_source(tokenizer: PreTrainedTokenizerBase, text: Text) -> TokenSource:
    """Tokens of a text by a Hugging Face tokenizer, without special tokens; the softmax runs over all."""
    ids, mask = _in_pieces(tokenizer, text), tokenizer.mask_token_id
    size = max(int(ids.max()) if len(ids) else 0, mask or 0) + 1
    return TokenSource(f"text sha256:{text.sha256}", ids, size, size, mask, classes=None)


def _in_pieces(tokenizer: PreTrainedTokenizerBase, text: Text) -> Tensor:
    """Return the tokens of a text (n,), of which the tokenizer is given a piece at a time."""
    rows = (encoded(tokenizer, [piece])[0] for piece in pieces(text.content))
    return torch.cat([torch.tensor(row, dtype=torch.int64) for row in rows])


def random_source(vocabulary: int = 8192, seed: int = 0) -> TokenSource:
    """Uniformly random tokens; id 0 is the mask and is not drawn. ``ValueError`` below 2 ids."""
    if vocabulary < 2:
        raise ValueError(f"a vocabulary of {vocabulary} is too small; 2 is the least")
    return TokenSource(f"random seed {seed}", None, vocabulary, 2, mask=0, classes=vocabulary, seed=seed)


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
    """Which positions (n, t) of each sequence are drawn, ``count`` of each."""
    drawn = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(seed))
    order = drawn.argsort(stable=True, dim=1)
    return torch.zeros_like(tokens, dtype=torch.bool).scatter_(1, order[:, :count], True)


def _images(classes: int, count: int, seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn((count, *IMAGE), generator=generator)
    labels = torch.randint(classes, (count,), generator=generator)
    return Batch(images, labels, None, f"random images seed {seed}")
