"""Readers of a text by tokens of their own: bits a byte, and KL over tokens shared with the parent."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from zerolm.architecture import Floats, Ints
from zerolm.carving.vocabulary.byte_losses import windows_of
from zerolm.carving.vocabulary.tokenizer_files import plain_document
from zerolm.checkpoints import Checkpoint
from zerolm.evaluation.readers import Reader
from zerolm.networks.opener import stock_tokenizer
from zerolm.networks.pooling import TokenPooling
from zerolm.passes.divergence import kl, surprises
from zerolm.passes.outputs import BATCH, by_span, embeddings, logits_of
from zerolm.text.calibration import longest_line
from zerolm.text.encoding import separator
from zerolm.text.tokens import Tokens, padded_lines


@dataclass(frozen=True, eq=False)
class OwnTokens(Reader):
    """A reader of stretches of a text, or of lines by an encoder, by the tokenizer of its checkpoint.

    Windows have ``length`` tokens at most. The parent itself has the ``parent`` None.
    """

    checkpoint: Checkpoint
    model: PreTrainedModel
    length: int
    parent: OwnTokens | None = None

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer as transformers has it, without padding and truncation."""
        return Tokenizer.from_str(json.dumps(plain_document(self.checkpoint)))

    @cached_property
    def stock(self) -> PreTrainedTokenizerBase:
        """The stock tokenizer of the folder."""
        return stock_tokenizer(self.checkpoint.folder)

    @cached_property
    def start(self) -> list[int]:
        """The token before a text, or none."""
        return separator(self.stock, self.checkpoint.layout.vocab)[:1]

    @cached_property
    def columns(self) -> tuple[Tensor, Tensor]:
        """The ids of the tokens that this reader and its parent share: its own, and the parent's."""
        ids, parent_ids = (one.tokenizer.get_vocab() for one in (self, self.parent or self))
        shared = sorted(ids.keys() & parent_ids.keys())
        device = self.model.device
        mine, other = (torch.tensor([v[token] for token in shared], device=device) for v in (ids, parent_ids))
        return mine, other

    def places(self, stretch: str) -> dict[Hashable, int]:
        """Return the positions in the first window of a stretch whose logits predict each piece of the text.

        A piece is its characters, its number among tokens of the same characters, for bytes of a character
        all have its span, and its token.
        """
        read, seen, places = self._read(stretch), Counter[tuple[int, int]](), dict[Hashable, int]()
        window = min(self.length, len(self.start) + len(read.ids))
        for at, (span, token) in enumerate(zip(read.offsets, read.tokens, strict=True), len(self.start) - 1):
            if 0 <= at < window:
                places[span, seen[span], token] = at
            seen[span] += 1
        return places

    def predictions(self, passage: str) -> StretchPredictions:
        ids = torch.tensor([*self.start, *self._read(passage).ids])
        some = windows_of(ids, self.length)
        windows = [(logits_of(self.model, {"input_ids": each[None]})[0], each[1:]) for each in some]
        return StretchPredictions(self, windows, self.places(passage) if windows else {})

    def _read(self, stretch: str) -> Encoding:
        return self.tokenizer.encode(stretch, add_special_tokens=False)

    def embeddings(self, passage: Sequence[str]) -> Tensor:
        pooling = TokenPooling.of(self.checkpoint)
        batches = self.tokens(passage).batches(BATCH)
        return torch.cat([embeddings(self.model, batch, pooling) for batch in batches])

    def tokens(self, lines: Sequence[str]) -> Tokens:
        """Return the tokens of lines as an encoder reads them."""
        longest = longest_line(self.checkpoint, self.length)
        return padded_lines(lines, self.stock, longest, prompt=self.checkpoint.prompt)


@dataclass(frozen=True, eq=False)
class StretchPredictions:
    """Predictions of a reader on a stretch: logits (t, v) of each window, and tokens that follow (t - 1,).

    ``places`` are the positions in the first one whose logits predict pieces of the text.
    """

    reader: OwnTokens
    windows: Sequence[tuple[Tensor, Tensor]]
    places: Mapping[Hashable, int]

    def nats(self, parent: StretchPredictions) -> tuple[Floats, Ints]:
        """Return nats of surprise and of KL(parent || this), and their numbers, (spans, 2) both.

        KL is over the tokens that both have, behind places in the first windows where both have read the same
        pieces and read the same one next.
        """
        by_position = np.zeros((self.reader.length, 4))  # surprise, KL, and the number of each
        for logits, following in self.windows:
            nats = surprises(logits[:-1], following.to(logits.device))
            by_position[: len(nats), [0, 2]] += _with_ones(nats)
        pairs = [(self.places[piece], at) for piece, at in parent.places.items() if piece in self.places]
        if pairs:
            child_places, parent_places = torch.tensor(pairs).T
            mine, other = self.reader.columns
            rows = parent.windows[0][0][parent_places][:, other], self.windows[0][0][child_places][:, mine]
            by_position[parent_places.numpy()[:, None], [1, 3]] = _with_ones(kl(*rows))
        sums = by_span(by_position, range(self.reader.length))
        return sums[:, :2], sums[:, 2:].astype(np.int64)


def _with_ones(nats: Tensor) -> Floats:
    return np.stack([nats.cpu().double().numpy(), np.ones(len(nats))], -1)
