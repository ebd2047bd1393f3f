"""Batches for networks: sequences of tokens from a text or at random, or random images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedTokenizerBase

from zerolm.networks.batch import NOTHING, Batch
from zerolm.networks.network import Task
from zerolm.text.tokens import Text

MASKED: Final = 0.15
"""The part of a sequence that is masked, as in BERT."""
IMAGE: Final = (3, 224, 224)
REPLACED: Final = 0x5EED
"""What tells the seed of replacements from that of the positions."""
MASK: Final = "[MASK]"
LEAST: Final = 257
"""The ids that a byte-level tokenizer has at least: the mask and every byte."""
TRAINED_ON: Final = 16 << 20
PIECE: Final = 1 << 16


@dataclass(frozen=True, eq=False)
class TokenSource:
    """A stream of tokens that batches are cut from.

    ``ids`` is the tokenized text (N,), or None where tokens are drawn at random under ``seed``. Ids are below
    ``size``, of which ``least`` are needed at least. ``mask`` is the id that stands for a masked token.
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
        """A batch for a network of so many classes: ``sequences`` of ``length`` tokens, or images.

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
            raise ValueError(f"the network knows {classes} tokens, the tokenizer has {self.size}: {advice}")
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
        firsts = [step * (count - span) // max(sequences - 1, 1) for step in range(sequences)]
        return torch.stack([self.ids[first : first + span] for first in firsts]).long()


def trained_tokenizer(texts: Iterable[str], vocabulary: int) -> Tokenizer:
    """Return a byte-level BPE trained on texts, of at most so many ids; id 0 is the mask, ``MASK``.

    The same texts give the same tokenizer everywhere. ``ValueError`` below 257 ids.
    """
    if vocabulary < LEAST:
        raise ValueError(f"a vocabulary of {vocabulary} is too small; {LEAST} is the least")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=[MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.encode_special_tokens = True  # a text that says [MASK] masks nothing
    return tokenizer


def text_source(text: Text, vocabulary: int = 8192) -> TokenSource:
    """Tokens of a text, by a byte-level BPE trained on it (on at most its first 16 Mi characters).

    There are at most ``vocabulary`` ids, fewer where the text is too short for more; id 0 is the mask.
    The same text gives the same tokens everywhere. Raises ``ValueError`` below 257 ids.
    """
    tokenizer = trained_tokenizer(_pieces(text.content[:TRAINED_ON]), vocabulary)
    ids = torch.cat([torch.tensor(tokenizer.encode(piece).ids) for piece in _pieces(text.content)])
    size = tokenizer.get_vocab_size()
    return TokenSource(f"text sha256:{text.sha256}", ids, size, LEAST, mask=0, classes=size)


def stock_source(tokenizer: PreTrainedTokenizerBase, text: Text) -> TokenSource:
    """Tokens of a text by a Hugging Face tokenizer, without special tokens; the softmax runs over all."""
    pieces = (
        tokenizer(piece, add_special_tokens=False, verbose=False)["input_ids"]
        for piece in _pieces(text.content)
    )
    ids = torch.cat([torch.tensor(piece, dtype=torch.int64) for piece in pieces])
    mask = tokenizer.mask_token_id
    size = max(int(ids.max()) if len(ids) else 0, mask or 0) + 1
    return TokenSource(f"text sha256:{text.sha256}", ids, size, size, mask, classes=None)


def random_source(vocabulary: int = 8192, seed: int = 0) -> TokenSource:
    """Uniformly random tokens; id 0 is the mask and is not drawn. ``ValueError`` below 2 ids."""
    if vocabulary < 2:
        raise ValueError(f"a vocabulary of {vocabulary} is too small; 2 is the least")
    return TokenSource(f"random seed {seed}", None, vocabulary, 2, mask=0, classes=vocabulary, seed=seed)


def _pieces(content: str) -> Iterator[str]:
    """The text in pieces, as the tokenizer takes many times the memory of what it is given."""
    return (content[start : start + PIECE] for start in range(0, len(content), PIECE))


def masked(
    tokens: Tensor, mask: int, seed: int, vocabulary: int = 0, edges: tuple[int, int] = (0, 0)
) -> tuple[Tensor, Tensor]:
    """Return inputs and labels (n, t): round(.15 t) positions of each sequence, at least one, are masked.

    They are drawn under the seed; the labels of all others are ``NOTHING``. With a ``vocabulary`` only four
    of five, as drawn, are masked; of the others half get a random token below it, half stay as they are
    (BERT, arXiv 1810.04805, section 3.1). Of the ``edges`` of each sequence, so many tokens at its beginning
    and at its end, none is drawn.
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
