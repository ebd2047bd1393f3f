"""Calibration tokens: from a text, or random ones, which need no data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

MAX_TEXT: Final = 256 << 20


@dataclass(frozen=True)
class Text:
    """A text and the SHA-256 of the file that it came from."""

    content: str
    sha256: str


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
        """The SHA-256 of the tokens and their mask."""
        parts = [self.ids] if self.mask is None else [self.ids, self.mask]
        content = b"".join(repr(tuple(x.shape)).encode() + x.numpy().tobytes() for x in parts)
        return hashlib.sha256(content).hexdigest()

    def spread(self, sequences: int) -> Tokens:
        """At most so many sequences, evenly from all."""
        count = min(sequences, len(self))
        chosen = [i * len(self) // count for i in range(count)]
        mask = None if self.mask is None else self.mask[chosen]
        return Tokens(self.ids[chosen], mask, self.text, self.seed)

    def halves(self) -> tuple[Tokens, Tokens]:
        """Return every other sequence, and those between."""
        masks = [None, None] if self.mask is None else [self.mask[0::2], self.mask[1::2]]
        first, second = (
            Tokens(self.ids[start::2], mask, self.text, self.seed) for start, mask in enumerate(masks)
        )
        return first, second

    def batches(self, size: int = 8) -> list[dict[str, Tensor]]:
        """Return what a model is given: ``input_ids`` (b, t) and, with padding, ``attention_mask`` (b, t).

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


def read_text(file: Path) -> Text:
    """Read a UTF-8 file; ``ValueError`` where it cannot be read, is empty, no text or too long."""
    try:
        if file.exists() and not file.is_file():
            raise ValueError(f"{file} is not a regular file")
        with file.open("rb") as opened:
            data = opened.read(MAX_TEXT + 1)
    except OSError as error:
        raise ValueError(f"the text {str(file)!r} cannot be read: {error.strerror}") from None
    if len(data) > MAX_TEXT:
        raise ValueError(f"{file} has more than {MAX_TEXT >> 20} MiB; a part of it does")
    try:
        content = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not text in UTF-8: byte {error.start} is wrong") from None
    if "\0" in content:
        raise ValueError(f"{file} is not text: it holds zero bytes")
    if not content.strip():
        raise ValueError(f"{file} is empty")
    return Text(content, hashlib.sha256(data).hexdigest())


def running_tokens(text: Text, tokenizer: PreTrainedTokenizerBase, sequences: int, length: int) -> Tokens:
    """For decoders: ``sequences`` of ``length`` tokens spread evenly over the text, none overlapping.

    Each begins with what the tokenizer puts before any text (a BOS, or nothing). A short text gives fewer
    sequences; ``ValueError`` where it is too short for one.
    """
    start = _ids(tokenizer, "", special=True)[:1]
    ids = _ids(tokenizer, text.content, special=False)
    own = length - len(start)
    count = min(sequences, len(ids) // own)
    if count < 1:
        raise ValueError(f"the text has {len(ids)} tokens, one sequence needs {own}: give more text")
    firsts = [step * (len(ids) - own) // max(count - 1, 1) for step in range(count)]
    rows = [start + ids[first : first + own] for first in firsts]
    return Tokens(torch.tensor(rows), text=text.sha256)  # (n, t)


def line_tokens(text: Text, tokenizer: PreTrainedTokenizerBase, sequences: int, length: int) -> Tokens:
    """For encoders: ``sequences`` lines spread evenly over the text, cut to ``length`` tokens, padded."""
    lines = [line.strip() for line in text.content.splitlines() if line.strip()]
    count = min(sequences, len(lines))
    chosen = [lines[step * len(lines) // count] for step in range(count)]
    rows = [_ids(tokenizer, line, special=True, length=length) for line in chosen]
    longest = max(map(len, rows))
    pad = tokenizer.pad_token_id if isinstance(tokenizer.pad_token_id, int) else 0
    ids = [row + [pad] * (longest - len(row)) for row in rows]
    mask = [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
    return Tokens(torch.tensor(ids), torch.tensor(mask), text=text.sha256)  # (n, t) both


def random_tokens(
    vocabulary: int, sequences: int, length: int, *, special: Iterable[int] = (), seed: int = 0
) -> Tokens:
    """Uniformly random token ids below ``vocabulary`` without the special ones."""
    kept = torch.tensor(sorted(set(range(vocabulary)) - set(special)))
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(kept), (sequences, length), generator=generator)
    return Tokens(kept[drawn], seed=seed)  # (n, t)


def _ids(
    tokenizer: PreTrainedTokenizerBase, text: str, *, special: bool, length: int | None = None
) -> list[int]:
    encoded = tokenizer(
        text, add_special_tokens=special, truncation=length is not None, max_length=length, verbose=False
    )
    return [int(token) for token in encoded["input_ids"]]
