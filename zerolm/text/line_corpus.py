"""Sentences to train an encoder on: one a line, each padded behind its end."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from zerolm.architecture import Ints
from zerolm.progress import Progress, silent
from zerolm.settings.messages import plural
from zerolm.text.corpus import Corpus, TokenFile
from zerolm.text.defaults import HELD
from zerolm.text.documents import documents
from zerolm.text.encoding import chat_renderer, encoded_line
from zerolm.text.pairs import sentences_of
from zerolm.text.tokens import Tokens

PADDING: Final = -1
"""The id that stands behind the end of a sentence; no tokenizer has it."""
LEAST_LINES: Final = 10
SORTED: Final = 32
"""Batches whose sentences are sorted by length together; random batches are padded to twice their tokens."""
REPORTED: Final = 256
"""Lines between two reports."""


@dataclass(frozen=True, eq=False)
class LineCorpus(Corpus):
    """Sentences of at most ``length`` tokens, each as it is read alone, with padding behind its end.

    ``ends`` are where those of each text end among its tokens. The last of every text are held out.
    """

    ends: tuple[Ints, ...] = ()

    @classmethod
    def read(
        cls,
        sources: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        length: int,
        most: int,
        *,
        prompt: str = "",
        shares: tuple[float, ...] | None = None,
        progress: Progress = silent,
    ) -> LineCorpus:
        """Return the sentences of texts, each cut to about a number of tokens.

        Each begins with the ``prompt``.
        """
        texts, ends = [], []
        for source in sources:
            rows, count, digest = [], 0, hashlib.sha256()
            texts_of = documents(source, chat_renderer(tokenizer))
            for line in (line for one in texts_of for line in sentences_of(one.name, one.content)):
                rows.append(encoded_line(tokenizer, prompt + line, length))
                count += len(rows[-1])
                digest.update(f"{prompt}{line}\n".encode("utf-8", "surrogateescape"))
                if len(rows) % REPORTED == 0:
                    progress(f"tokenizing {source}", count, most)
                if count >= most:
                    break
            ids = np.array([token for row in rows for token in row], np.int64)
            ends.append(np.cumsum([len(row) for row in rows]))
            texts.append(TokenFile(source, digest.hexdigest(), len(rows), ids))
        longest = max((int(np.diff(each, prepend=0).max()) for each in ends if len(each)), default=length)
        corpus = cls(tuple(texts), longest, shares=shares, ends=tuple(ends))
        corpus.check_length()
        return corpus

    def check_length(self) -> None:
        """Raise ``ValueError`` where a text has too few sentences to train on and to hold out of."""
        for text, ends in zip(self.texts, self.ends, strict=True):
            if len(ends) < LEAST_LINES:
                few = f"{plural(len(ends), 'sentence')}, one a line; {LEAST_LINES} are the least"
                raise ValueError(f"the text {text.source!r} has {few}")

    @cached_property
    def counts(self) -> list[tuple[int, int]]:
        """Sentences of each text: to train on, and held out."""
        held = [min(HELD, len(ends) // LEAST_LINES) for ends in self.ends]
        return [(len(ends) - count, count) for ends, count in zip(self.ends, held, strict=True)]

    @property
    def usual_length(self) -> int:
        return max(1, round(sum(len(text.ids) for text in self.texts) / sum(map(len, self.ends))))

    def grouped(self, pairs: Ints, batch: int, seed: int) -> Ints:
        """Return (text, window) pairs (n, 2) so that sentences of a batch are about as long, batches random.

        Sentences move within ``SORTED`` batches alone, so that they come again no earlier than those do.
        """
        if batch == 1:
            return pairs
        generator, size = np.random.default_rng(seed), SORTED * batch
        lengths = [np.diff(ends, prepend=0) for ends in self.ends]
        parts = []
        for part in (pairs[first : first + size] for first in range(0, len(pairs), size)):
            by_length = part[np.argsort([lengths[text][line] for text, line in part], kind="stable")]
            whole = len(part) // batch * batch
            batches = by_length[:whole].reshape(-1, batch, 2)
            parts += [generator.permutation(batches).reshape(-1, 2), by_length[whole:]]
        return np.concatenate(parts)

    def tokens_in(self, text: int, windows: Ints) -> int:
        """Return the number of tokens in sentences (n,) of a text, without padding."""
        return int(np.diff(self.ends[text], prepend=0)[windows].sum())

    def sequence(self, text: int, window: int) -> Tensor:
        """Return the tokens (length,) of a sentence of a text, with padding behind it."""
        ends = self.ends[text]
        ids = self.texts[text].ids[ends[window - 1] if window else 0 : ends[window]]
        row = np.full(self.length, PADDING, np.int64)
        row[: len(ids)] = ids
        return torch.from_numpy(row)

    def _tokens(self, firsts: Sequence[int]) -> Tokens:
        tokens = super()._tokens(firsts)
        is_token = tokens.ids != PADDING
        return Tokens(tokens.ids.clamp_min(0), is_token.long(), text=tokens.text)


def without_padding(ids: Tensor) -> dict[str, Tensor]:
    """Return a model's inputs for sentences (b, t): with a mask, and no columns of padding alone."""
    mask = ids != PADDING
    longest = int(mask.sum(1).max())
    return {"input_ids": ids[:, :longest].clamp_min(0), "attention_mask": mask[:, :longest].long()}
