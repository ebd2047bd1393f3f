"""The loss of fewer tokens with the parent's weights: bits per byte for decoders, 1 - cosine for encoders.

The network with fewer tokens is the parent with another tokenization of the text and with fewer terms in its
softmax, so no weight has to be cut to measure it. Windows have the same number of tokens as before: a text of
more tokens has shorter contexts, which is part of the loss.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

import zerolm
from zerolm.architecture import Floats, Ints
from zerolm.carving.vocabulary.tokenizer_files import cut_document, plain_document
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.identity import fingerprint
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.networks.blocks import Blocks, Head, tokens_at_once
from zerolm.networks.compute import compute_of
from zerolm.networks.opener import is_decoder, stock_tokenizer
from zerolm.networks.pooling import TokenPooling
from zerolm.networks.stream import Stream
from zerolm.passes.divergence import surprises
from zerolm.text.calibration import PADDING, longest_line
from zerolm.text.documents import documents, read_text
from zerolm.text.encoding import chat_renderer, separator
from zerolm.text.record_texts import Render
from zerolm.text.records import holds_records
from zerolm.text.tokens import some
from zerolm.text.unpacked_files import PACKED

LOSS_TOKENS: Final = 1 << 14
"""Approximate number of tokens of a text that measure the loss of a vocabulary."""
CHARACTERS: Final = 4
"""Approximate number of characters in a token."""
BATCH_TOKENS: Final = 1 << 10
"""Approximate number of tokens to run at a time."""
KEPT_SHARE: Final = 8
"""The parent's states are stored if they take at most one in ``KEPT_SHARE`` bytes of memory."""
LOSSES_VERSION: Final = 2
Ids = TypeVar("Ids", Ints, Tensor)
ByIds = dict[bytes, Tensor]
"""Tensors by the bytes of the ids of a window or a line."""


@dataclass(frozen=True, eq=False)
class TokenLosses:
    """The losses of vocabularies of a parent, whose ``model`` runs by layers, on ``stretches`` of a text.

    Windows have at most ``length`` tokens. The states (t, d) behind the last layer are stored by windows of
    the parent's own tokens, the embeddings (d,) by lines.
    """

    checkpoint: Checkpoint
    model: PreTrainedModel
    stretches: tuple[str, ...]
    length: int
    _states: ByIds = field(default_factory=dict, init=False)
    _embeddings: ByIds = field(default_factory=dict, init=False)

    @classmethod
    def on(cls, checkpoint: Checkpoint, model: PreTrainedModel, text: str, length: int) -> TokenLosses:
        """Return losses on stretches of a text, evenly spread."""
        render = chat_renderer(stock_tokenizer(checkpoint.folder))
        longest, count = _windows(checkpoint, length)
        stretches = stretches_of(text, count, longest * CHARACTERS, render)
        return cls._of(checkpoint, model, stretches, longest, count)

    @classmethod
    def of_pieces(
        cls, checkpoint: Checkpoint, model: PreTrainedModel, pieces: Sequence[str], length: int
    ) -> TokenLosses:
        """Return losses on the same number of stretches, evenly from a text's pieces."""
        longest, count = _windows(checkpoint, length)
        per_piece = -(-count // max(1, len(pieces)))
        parts = [part for piece in pieces for part in _within(piece, per_piece, longest * CHARACTERS)]
        return cls._of(checkpoint, model, some(parts, count), longest, count)

    @classmethod
    def _of(
        cls, checkpoint: Checkpoint, model: PreTrainedModel, stretches: list[str], length: int, count: int
    ) -> TokenLosses:
        if not is_decoder(checkpoint):
            lines = (line.strip() for part in stretches for line in part.splitlines())
            stretches = [line for line in lines if line][: 4 * count]
        return cls(checkpoint, model, tuple(stretches), length)

    @property
    def bits_a_nat(self) -> float:
        """Bits per byte of the text for one nat per token; 1 for an encoder, whose loss is a distance."""
        return self.tokens / self.bytes / math.log(2) if is_decoder(self.checkpoint) else 1.0

    @property
    def bytes(self) -> int:
        return sum(len(stretch.encode()) for stretch in self.stretches)

    @cached_property
    def tokens(self) -> int:
        """The number of tokens of the stretches with the parent's own tokenizer."""
        return sum(len(row) for row in self._read(None))

    def loss(self, kept: Ints | None) -> float:
        """Return bits per byte with only the kept tokens, None for all; for an encoder 1 - cosine."""
        if kept is None and not is_decoder(self.checkpoint):
            return 0.0
        digest = "" if kept is None else hashlib.sha256(kept.astype(np.int64).tobytes()).hexdigest()
        of = self.bits if is_decoder(self.checkpoint) else self._distance
        cache = ArrayCache.of("token losses", *self._key, digest)
        return float(cache.once("loss", lambda: {"loss": np.array(of(kept))})["loss"])

    @cached_property
    def _key(self) -> tuple[object, ...]:
        content = hashlib.sha256("\0".join(self.stretches).encode()).hexdigest()
        parent = self.checkpoint
        config = repr(sorted(parent.config.items()))
        rules = hashlib.sha256(json.dumps(self._document).encode()).hexdigest()
        products = str(compute_of(self.model).products)
        read = self.length, parent.prompt, repr(TokenPooling.of(parent)), products
        return LOSSES_VERSION, zerolm.__version__, fingerprint(parent), config, rules, content, *read

    @cached_property
    def _document(self) -> dict[str, Any]:
        return plain_document(self.checkpoint)

    @cached_property
    def _start(self) -> Ints:
        """The token before a text, (1,), or none, (0,)."""
        stock = stock_tokenizer(self.checkpoint.folder)
        return np.array(separator(stock, self.checkpoint.layout.vocab)[:1], np.int64)

    def _read(self, kept: Ints | None, *, around: bool = False) -> list[Ints]:
        """Return the stretches as ids of the parent's, tokenized with only the kept tokens."""
        document = self._document if kept is None else cut_document(self._document, kept)
        tokenizer = Tokenizer.from_str(json.dumps(document))
        texts = [self.checkpoint.prompt + part for part in self.stretches] if around else list(self.stretches)
        rows = tokenizer.encode_batch_fast(texts, add_special_tokens=around)
        ids = [np.array(row.ids, np.int64) for row in rows]
        return ids if kept is None else [kept[row] for row in ids]

    def bits(self, kept: Ints | None) -> float:
        """Return bits per byte with only the kept tokens, None for all."""
        rows = self.checkpoint.layout.vocab
        ids, new = np.arange(rows) if kept is None else kept, torch.full((rows,), -1)
        new[torch.from_numpy(ids)] = torch.arange(len(ids))
        nats = math.fsum(
            float(surprises(logits, new[wanted]).double().sum()) for logits, wanted in self._predictions(kept)
        )
        return nats / math.log(2) / self.bytes

    def likely(self) -> Floats:
        """Return the model's mean probability of each row over all tokens, (rows,)."""

        def likely() -> Arrays:
            total, count = torch.zeros(self.checkpoint.layout.vocab, dtype=torch.float64), 0
            for logits, _ in self._predictions(None):
                total += logits.softmax(-1).sum(0).double()
                count += len(logits)
            return {"likely": (total / max(1, count)).numpy()}

        return ArrayCache.of("likely tokens", *self._key).once("likely", likely)["likely"]

    @torch.no_grad()
    def _predictions(self, kept: Ints | None) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield logits (n, v) of some tokens, and the parent's ids (n,) of the tokens that follow.

        With ``kept`` tokens the text is tokenized with only these, and v is their number.
        """
        head = None if kept is None else _head_of(torch.from_numpy(kept))
        windows = [
            window
            for row in self._read(kept)
            for window in windows_of(np.concatenate([self._start, row]), self.length)
        ]
        windows.sort(key=len)
        for blocks, ids, mask, hidden in self._run(windows, keep=kept is None):
            step, last = tokens_at_once(blocks, len(ids)), ids.shape[1] - 1
            for first in range(0, last, step):
                end = min(first + step, last)
                logits: Tensor = blocks.finish(0, hidden[:, first:end], head=head).logits.float().cpu()
                is_token = mask[:, first + 1 : end + 1]
                following = ids[:, first + 1 : end + 1][is_token]
                yield logits[is_token][:, : self.checkpoint.layout.vocab], following

    def _run(self, windows: Sequence[Ints], *, keep: bool) -> Iterator[tuple[Blocks, Tensor, Tensor, Tensor]]:
        """Yield batches of windows: blocks, ids (b, t), mask, and the states (b, t, d) behind the last layer.

        With ``keep`` these states are stored where memory allows it. A window of the same ids is not run
        again: only the head differs between vocabularies that encode a window alike.
        """
        stored = [window for window in windows if window.tobytes() in self._states]
        new = [window for window in windows if window.tobytes() not in self._states]
        for several, is_new in ((stored, False), (new, True)):
            for at in range(0, len(several), self._batch):
                rows = several[at : at + self._batch]
                blocks, ids, mask = self._padded(rows)
                if is_new:
                    hidden = Stream(blocks).before(self.checkpoint.layout.depth)[0]
                else:
                    states = [self._states[row.tobytes()] for row in rows]
                    hidden = pad_sequence(states, batch_first=True).to(blocks.device)
                taken = sum(map(len, windows)) * hidden.shape[-1] * hidden.element_size()
                if keep and is_new and taken <= blocks.compute.limit // KEPT_SHARE:
                    pairs = zip(rows, hidden.cpu(), strict=True)
                    self._states.update((row.tobytes(), each[: len(row)]) for row, each in pairs)
                yield blocks, ids, mask, hidden

    @torch.no_grad()
    def _distance(self, kept: Ints | None) -> float:
        pooling, embeddings = TokenPooling.of(self.checkpoint), self._embeddings
        both = [[row[: self.length] for row in self._read(some, around=True)] for some in (None, kept)]
        new = {row.tobytes(): row for row in chain(*both) if row.tobytes() not in embeddings}
        for blocks, ids, mask, last in self._run([*new.values()], keep=False):
            pooled = pooling(blocks.finish(0, last).last_hidden_state.float().cpu(), mask)
            embeddings.update(
                (row[each].numpy().tobytes(), embedding)
                for row, each, embedding in zip(ids, mask, pooled, strict=True)
            )
        wanted, changed = (torch.stack([embeddings[row.tobytes()] for row in rows]) for rows in both)
        return float(pooling.distances(changed, wanted).double().mean())

    @property
    def _batch(self) -> int:
        """The number of windows to run at a time."""
        return max(1, BATCH_TOKENS // self.length)

    def _padded(self, rows: Sequence[Ints]) -> tuple[Blocks, Tensor, Tensor]:
        """Return a model for rows of ids, the ids as one tensor (b, t), and the mask of its tokens."""
        ids = pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True)
        mask = torch.arange(ids.shape[1]) < torch.tensor([[len(row)] for row in rows])
        masked = {} if bool(mask.all()) else {"attention_mask": mask.long()}
        return Blocks(self.model, [{"input_ids": ids, **masked}]), ids, mask


def _windows(checkpoint: Checkpoint, length: int) -> tuple[int, int]:
    """Return the largest length of a window without places for padding, and how many have ``LOSS_TOKENS``."""
    positions = checkpoint.layout.sizes.get("positions", length + PADDING)
    longest = min(longest_line(checkpoint, length), max(1, positions - PADDING))
    return longest, max(8, LOSS_TOKENS // longest)


def _within(piece: str, count: int, size: int) -> list[str]:
    """Return at most ``count`` stretches of a piece, of about ``size`` characters each, evenly spread."""
    starts = [step * max(0, len(piece) - size) // max(1, count - 1) for step in range(count)]
    parts, end = list[str](), 0
    for start in starts:
        place = max(start, end)
        place = piece.find("\n", place - 1) + 1 if place else 0
        part = _beginning(piece[place:], size) if place or start == 0 else ""
        if part.strip():
            parts.append(part)
            end = place + len(part)
    return parts


def _head_of(kept: Tensor) -> Head:
    """Return a head that computes the logits of the kept rows only."""
    rows: list[tuple[Tensor, Tensor | None]] = []

    def head(module: nn.Module, read: Tensor) -> Tensor:
        if not rows:
            weight, bias = module.get_parameter("weight"), getattr(module, "bias", None)
            at = kept.to(weight.device)
            rows.append((weight[at], None if bias is None else bias[at]))
        return functional.linear(read, *rows[0])

    return head


def windows_of(ids: Ids, length: int) -> Iterator[Ids]:
    """Yield windows of at most ``length`` ids; each begins with the last of the one before."""
    for first in range(0, len(ids) - 1, length - 1):
        yield ids[first : first + length]


def stretches_of(text: str, count: int, size: int, render: Render | None = None) -> list[str]:
    """Return at most ``count`` stretches of a text, of about ``size`` characters each, evenly spread.

    Each begins with a line and ends with one, or with a word. ``text`` is a file of any size, or a folder;
    ``render`` returns the text of messages.
    """
    file = Path(text)
    is_unpacked = holds_records(file) or file.suffix.lower() == PACKED
    if not file.is_file() and not (file.exists() and is_unpacked):
        few = (document.content for document, _ in zip(documents(text, render), range(count), strict=False))
        return [_beginning(content, size) for content in few if content.strip()]
    parts = list[str]()
    with io.BytesIO(read_text(file, render).content.encode()) if is_unpacked else file.open("rb") as opened:
        length = opened.seek(0, os.SEEK_END)
        for step in range(count):
            start = step * max(0, length - 2 * size) // max(1, count - 1)
            opened.seek(start)
            part = opened.read(2 * size).decode("utf-8", "ignore")
            if start:
                part = part[part.find("\n") + 1 :]
            parts.append(_beginning(part, size))
    return [part for part in dict.fromkeys(parts) if part.strip()]


def _beginning(text: str, size: int) -> str:
    """Return the beginning of a text up to the end of a line, else of a word, within ``size`` characters."""
    if len(text) <= size:
        return text
    for end in ("\n", " "):
        place = text.rfind(end, size // 2, size)
        if place > 0:
            return text[: place + (end == "\n")]
    return text[:size]
