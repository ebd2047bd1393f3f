"""How proxies are computed: batch, mode, seed, device and type of products.

Batches are sequences of tokens from a text or at random, or random images.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from zerolm.lab.zero_cost.passes import Protocol
from zerolm.lab.zero_cost.result import ProxyPasses, Upstream
from zerolm.networks.batch import IMAGE, Batch
from zerolm.networks.compute import Compute, compute
from zerolm.networks.network import Task
from zerolm.settings.compute import RunningRequest
from zerolm.text.documents import Text
from zerolm.text.encoding import TRAINED_ON, encoded, pieces, trained_tokenizer
from zerolm.text.predictions import masked
from zerolm.text.tokens import cut, spread_evenly

MOST_TOKENS: Final = 1 << 24
"""Tokens of a batch."""


@dataclass(frozen=True, eq=False)
class TokenSource:
    """A stream of tokens that batches are cut from.

    ``ids`` is the tokenized text (N,), or None where tokens are sampled at random under ``seed``. Ids are
    below ``size``. ``mask`` is the id that stands for a masked token. ``classes`` is what a batch's softmax
    runs over.
    """

    name: str
    ids: Tensor | None
    size: int
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
        if task == "image":
            generator = torch.Generator().manual_seed(seed)
            images = torch.randn((sequences, *IMAGE), generator=generator)
            labels = torch.randint(classes, (sequences,), generator=generator)
            return Batch(images, labels, None, f"random images seed {seed}")
        if classes < self.size:
            raise ValueError(f"the network has {classes} tokens, fewer than the {self.size} of the tokenizer")
        if task == "next":
            tokens = self._sequences(sequences, length + 1)
            return Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), self.classes, self.name)
        if self.mask is None:
            raise ValueError("the tokenizer has no mask token, and the network predicts masked ones")
        inputs, labels = masked(self._sequences(sequences, length), self.mask, seed)
        return Batch(inputs, labels, self.classes, self.name)

    def _sequences(self, count: int, span: int) -> Tensor:
        """Return tokens (count, span)."""
        if self.ids is None:
            generator = torch.Generator().manual_seed(self.seed)
            return torch.randint(1, self.size, (count, span), generator=generator)
        if len(self.ids) < count * span:
            raise ValueError(
                f"the text has {len(self.ids)} tokens, {count} sequences of {span} need {count * span}: give "
                "more text, or a smaller batch or length"
            )
        return cut(self.ids.numpy(), spread_evenly(len(self.ids), span, count), span)


def text_source(
    text: Text,
    vocabulary: int = 8192,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    name: str = "",
) -> TokenSource:
    """Return the tokens of a text by a tokenizer, without special tokens; the softmax runs over all.

    Without one it is by a byte-level BPE trained on it (on at most its first 16 Mi characters) of at most
    ``vocabulary`` ids, to which the softmax is limited; id 0 is the mask. The same text gives the same tokens
    everywhere. Results call the text by its ``name``. Raises ``ValueError`` below 257 ids.
    """
    reader = tokenizer or trained_tokenizer(pieces(text.content[:TRAINED_ON]), vocabulary)
    rows = (encoded(reader, [piece])[0] for piece in pieces(text.content))
    ids = torch.cat([torch.tensor(row, dtype=torch.int64) for row in rows])
    mask, called = reader.mask_token_id, f"text {name!r} (sha256 {text.sha256[:12]})"
    if tokenizer is None:
        return TokenSource(called, ids, len(reader), mask, classes=len(reader))
    largest = max(int(ids.max()) if len(ids) else 0, mask or 0)
    return TokenSource(called, ids, largest + 1, mask, classes=None)


def random_source(vocabulary: int = 8192, seed: int = 0) -> TokenSource:
    """Return uniformly random tokens; id 0 is the mask and is not drawn. ``ValueError`` below 2 ids."""
    if vocabulary < 2:
        raise ValueError(f"a vocabulary of {vocabulary} is too small; 2 is the least")
    return TokenSource(f"random seed {seed}", None, vocabulary, mask=0, classes=vocabulary, seed=seed)


@dataclass(frozen=True)
class Settings(ProxyPasses):
    """How proxies are computed, checked."""

    def __post_init__(self) -> None:
        if self.batch * self.length > MOST_TOKENS:
            raise ValueError(
                f"a batch of {self.batch} x {self.length} tokens is too large; {MOST_TOKENS} are the most"
            )
        if not 1 <= self.parts <= self.batch or self.batch % self.parts:
            fitting = [k for k in range(1, self.batch + 1) if self.batch % k == 0]
            nearest = min(fitting, key=lambda k: abs(k - self.parts))
            raise ValueError(
                f"{self.parts} equal micro-batches of {self.batch} are not possible; {nearest} are"
            )
        if self.compute.sums != self.compute.device:
            raise ValueError(f"proxies need float64, which {self.compute.device} lacks: give --device cpu")

    @property
    def compute(self) -> Compute:
        """Return the device and the type of products; ``ValueError`` for what is not here."""
        return compute(RunningRequest(self.device, self.dtype))

    @property
    def named(self) -> Settings:
        """Return the same with the names of what ``auto`` stands for."""
        return replace(self, device=str(self.compute.device), dtype=self.compute.to_json()["dtype"])

    def protocol(self, task: str) -> Protocol:
        usual: Upstream = "ones" if self.mode == "faithful" and task == "masked" else "task"
        return Protocol(self.mode, self.upstream or usual, self.parts, self.seed)

    def key(self, source: TokenSource) -> str:
        """Return all of it and what the batches are cut from, as canonical text; of a device its kind."""
        ids = b"" if source.ids is None else source.ids.numpy().tobytes()
        tokens = hashlib.sha256(
            ids + repr((source.size, source.mask, source.classes, source.seed)).encode()
        ).hexdigest()
        return json.dumps({**vars(self), **self.compute.to_json(), "tokens": tokens}, sort_keys=True)
