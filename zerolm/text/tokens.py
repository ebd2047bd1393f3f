"""Calibration tokens: from a text, or random ones, which need no data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from zerolm.architecture import Ints
from zerolm.settings.messages import plural
from zerolm.text.defaults import LEAST_SEQUENCES
from zerolm.text.documents import Text
from zerolm.text.encoding import edges, encoded_line, running_ids

LEAST_FILLED: Final = 1 << 9
"""Tokens at least, padding included, of a batch of sequences of several lengths."""
HELD_SHARE: Final = 8
HELD_TOKENS: Final = 1 << 13
"""Each of two held-out sets has one sequence in ``HELD_SHARE``, at most about ``HELD_TOKENS`` tokens."""


@dataclass(frozen=True, eq=False)
class DividedTokens:
    """Sequences of one text in three sets without a sequence in common.

    Units are chosen and matrices refitted on ``fitted``; plans and ridges are compared on ``compared``;
    losses that are reported are measured on ``judged``.
    """

    fitted: Tokens
    compared: Tokens
    judged: Tokens


@dataclass(frozen=True, eq=False)
class Tokens:
    """Sequences of token ids (n, t); ``mask`` (n, t) is 1 on tokens and 0 on padding, None without padding.

    ``text`` is the SHA-256 of the text that they come from, ``seed`` what random ones were drawn with.
    """

    ids: Tensor
    mask: Tensor | None = None
    text: str | None = None
    seed: int | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def count(self) -> int:
        """How many tokens there are, without padding."""
        return self.ids.numel() if self.mask is None else int(self.mask.sum())

    def digest(self) -> str:
        parts = [self.ids] if self.mask is None else [self.ids, self.mask]
        content = b"".join(repr(tuple(x.shape)).encode() + x.numpy().tobytes() for x in parts)
        return hashlib.sha256(content).hexdigest()

    def spread(self, sequences: int) -> Tokens:
        """Return at most this number of sequences, evenly from all."""
        count = min(sequences, len(self))
        return self.rows([i * len(self) // count for i in range(count)])

    def rows(self, chosen: Sequence[int] | Ints) -> Tokens:
        """Return the sequences of these numbers."""
        index = torch.as_tensor(chosen, dtype=torch.long)
        mask = None if self.mask is None else self.mask[index]
        return Tokens(self.ids[index], mask, self.text, self.seed)

    def most(self, tokens: int) -> Tokens:
        """Return sequences with about this number of tokens, evenly from all; at least one."""
        return self.spread(max(1, tokens * len(self) // self.count))

    def at_once(self, tokens: int) -> int:
        """Return the number of sequences in a batch of about this number of tokens, at least one."""
        return max(1, tokens // self.ids.shape[1])

    def divided(self) -> DividedTokens:
        """Return the sequences divided into those for fitting and two held-out sets, from all of the text.

        ``ValueError`` for fewer than three sequences.
        """
        if len(self) < LEAST_SEQUENCES:
            raise ValueError(
                f"the text gives {plural(len(self), 'sequence')} of {self.ids.shape[1]} tokens; "
                f"{LEAST_SEQUENCES} are the least, because two are held out: give more text, or a smaller "
                "--length"
            )
        held_count = min(max(1, len(self) // HELD_SHARE), max(1, HELD_TOKENS * len(self) // self.count))
        generator = np.random.default_rng(0)  # at random within each stretch: texts may have a period
        ends = np.arange(2 * held_count + 1) * len(self) // (2 * held_count)
        held = generator.integers(ends[:-1], ends[1:])
        sides = generator.permuted(np.tile([0, 1], (held_count, 1)), axis=1).ravel()
        fitted = np.setdiff1d(np.arange(len(self)), held)
        return DividedTokens(self.rows(fitted), self.rows(held[sides == 0]), self.rows(held[sides == 1]))

    def shortest_first(self) -> Ints:
        """Return the numbers (n,) of the sequences by their length, so that batches of them pad little."""
        if self.mask is None:
            return np.arange(len(self))
        return np.argsort(self.mask.sum(1).numpy(), kind="stable")

    def filled(self, size: int) -> list[dict[str, Tensor]]:
        """Return batches of ``size`` sequences; padded ones by length, with about the same number of tokens
        in each batch.

        For sums over sequences, whose order does not matter: without padding the order is kept.
        """
        if self.mask is None:
            return self.batches(size)
        lengths, order = self.mask.sum(1), self.shortest_first()
        room = max(size * self.ids.shape[1], LEAST_FILLED)
        batches, start = list[dict[str, Tensor]](), 0
        for end in range(1, len(order) + 1):
            is_last = end == len(order)
            if is_last or int(lengths[order[end]]) * (end + 1 - start) > room:
                batches += self.rows(order[start:end].tolist()).batches(end - start)
                start = end
        return batches

    def batches(self, size: int = 8) -> list[dict[str, Tensor]]:
        """Return a model's inputs: ``input_ids`` (b, t) and, with padding, ``attention_mask`` (b, t).

        Columns of padding only are left out.
        """
        starts = range(0, len(self), size)
        if self.mask is None:
            return [{"input_ids": self.ids[start : start + size]} for start in starts]
        batches = []
        for start in starts:
            mask = self.mask[start : start + size]
            longest = int(mask.any(0).nonzero().max()) + 1
            ids = self.ids[start : start + size, :longest]
            batches.append({"input_ids": ids, "attention_mask": mask[:, :longest]})
        return batches


def spread_evenly(tokens: int, size: int, count: int) -> list[int]:
    """Return the starts of ``count`` sequences of ``size`` tokens, evenly over a text of ``tokens``.

    The first begins the text and the last ends it; none overlap where the text is long enough.
    """
    return [step * (tokens - size) // max(count - 1, 1) for step in range(count)]


def cut(
    ids: NDArray[Any], firsts: Sequence[int], size: int, start: Sequence[int] = (), end: Sequence[int] = ()
) -> Tensor:
    """Return sequences (n, start + size + end): ``size`` tokens of a text from each of ``firsts`` on.

    Each stands between the tokens ``start`` and ``end``.
    """
    before, behind = (np.array(edge, np.int64) for edge in (start, end))
    rows = [np.concatenate([before, ids[first : first + size], behind]) for first in firsts]
    return torch.from_numpy(np.stack(rows).astype(np.int64))


def running_tokens(text: Text, tokenizer: PreTrainedTokenizerBase, sequences: int, length: int) -> Tokens:
    """For decoders: ``sequences`` of ``length`` tokens spread evenly over the text, none overlapping.

    Each begins with what the tokenizer puts before any text (a BOS, or nothing). Documents of a text of
    several are separated as in training. A short text gives fewer sequences; ``ValueError`` where it is too
    short for one.
    """
    start, _ = edges(tokenizer)
    ids = running_ids(tokenizer, text.documents)
    size = length - len(start)
    count = min(sequences, len(ids) // size)
    if count < 1:
        raise ValueError(
            f"the text has {plural(len(ids), 'token')}, one sequence needs {size}: give more text"
        )
    firsts = spread_evenly(len(ids), size, count)
    return Tokens(cut(np.array(ids), firsts, size, start), text=text.sha256)  # (n, t)


def line_tokens(
    text: Text, tokenizer: PreTrainedTokenizerBase, sequences: int, length: int, *, prompt: str = ""
) -> Tokens:
    """For encoders: ``sequences`` lines spread evenly over the text, cut to ``length`` tokens, padded.

    Each begins with the ``prompt``.
    """
    lines = [line.strip() for line in text.content.splitlines() if line.strip()]
    tokens = padded_lines(some(lines, sequences), tokenizer, length, prompt=prompt)
    return replace(tokens, text=text.sha256)


def some(lines: Sequence[str], count: int) -> list[str]:
    """Return at most ``count`` lines, evenly from all."""
    count = min(count, len(lines))
    return [lines[step * len(lines) // count] for step in range(count)]


def padded_lines(
    lines: Sequence[str], tokenizer: PreTrainedTokenizerBase, length: int, *, prompt: str = ""
) -> Tokens:
    """Return lines, each behind the ``prompt``, cut to ``length`` tokens and padded."""
    rows = [encoded_line(tokenizer, prompt + line, length) for line in lines]
    longest = max(map(len, rows))
    pad = tokenizer.pad_token_id if isinstance(tokenizer.pad_token_id, int) else 0
    ids = [row + [pad] * (longest - len(row)) for row in rows]
    mask = [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
    return Tokens(torch.tensor(ids), torch.tensor(mask))  # (n, t) both


def random_tokens(
    vocabulary: int, sequences: int, length: int, *, special: Iterable[int] = (), seed: int = 0
) -> Tokens:
    """Uniformly random token ids below ``vocabulary`` without the special ones."""
    usual = torch.tensor(sorted(set(range(vocabulary)) - set(special)))
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(usual), (sequences, length), generator=generator)
    return Tokens(usual[drawn], seed=seed)  # (n, t)
