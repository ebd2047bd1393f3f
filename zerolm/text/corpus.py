"""Tokens of texts on the disk, memory-mapped, and the sequences that training takes from them in order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from zerolm.architecture import Floats, Ints
from zerolm.io.files import cache_folder, replacing
from zerolm.progress import Progress, silent
from zerolm.text.documents import Document, documents, is_local
from zerolm.text.tokens import Tokens

VERSION: Final = 1
HELD: Final = 64
"""Sequences of each text that are held out, unless that is more than a tenth of it."""
BATCH: Final = 256
"""Documents that the tokenizer is given at a time."""


@dataclass(frozen=True, eq=False)
class TokenFile:
    """The tokens of one text, (n,) memory-mapped; ``sha256`` is that of its documents."""

    source: str
    sha256: str
    documents: int
    ids: NDArray[Any]


def token_file(
    source: str,
    tokenizer: PreTrainedTokenizerBase,
    most: int,
    progress: Progress = silent,
    *,
    vocabulary: int | None = None,
) -> TokenFile:
    """Return the tokens of a text, at most about so many, from the cache where they are there already.

    Documents follow one another, each after what the tokenizer puts before a text, or else what it ends one
    with, if anything. ``ValueError`` where there is nothing to read.
    """
    between = separator(tokenizer, vocabulary)
    known = hashlib.sha256(f"{_identity(tokenizer)} {between}".encode())
    if is_local(source):
        texts = list(documents(source))
        digest = _digest(texts)
        known.update(digest.encode())
        known.update(str(most).encode())
        stream: Iterator[Document] = iter(texts)
    else:
        digest = ""
        known.update(f"{source} {most}".encode())
        stream = documents(source)
    place = cache_folder("tokens") / known.hexdigest()
    if not (place / "text.json").is_file():
        _write(
            place, stream, tokenizer, between, most, lambda done: progress(f"tokenizing {source}", done, most)
        )
    told = json.loads((place / "text.json").read_text(encoding="utf-8"))
    ids = np.memmap(place / "ids.bin", np.dtype(told["dtype"]), "r")
    if len(ids) != told["tokens"]:
        raise ValueError(f"the cached tokens in {str(place)!r} are damaged: remove that folder")
    return TokenFile(source, digest or told["sha256"], told["documents"], ids)


def _identity(tokenizer: PreTrainedTokenizerBase) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    return f"{VERSION} {type(tokenizer).__name__} {rules}"


def _digest(texts: Sequence[Document]) -> str:
    """Return the SHA-256 of documents with their names."""
    digest = hashlib.sha256()
    for text in texts:
        for part in (text.name, text.content):
            content = part.encode("utf-8", "surrogateescape")
            digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def edges(tokenizer: PreTrainedTokenizerBase) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return what the tokenizer puts before any text (a BOS, [CLS], or nothing) and behind it ([SEP])."""
    around = [int(token) for token in tokenizer("", verbose=False)["input_ids"]]
    begins = bool(around) and (len(around) > 1 or around[0] != tokenizer.eos_token_id)
    return tuple(around[:1] if begins else ()), tuple(around[1:] if begins else around)


def separator(tokenizer: PreTrainedTokenizerBase, vocabulary: int | None = None) -> list[int]:
    """Return what stands between documents: what begins a text, else what ends one, else nothing.

    An end that is not among the ``vocabulary`` tokens of the model is left out.
    """
    end = tokenizer.eos_token_id
    knows_end = isinstance(end, int) and (vocabulary is None or end < vocabulary)
    return list(edges(tokenizer)[0]) or ([int(end)] if knows_end else [])


def _write(
    place: Path,
    texts: Iterator[Document],
    tokenizer: PreTrainedTokenizerBase,
    between: Sequence[int],
    most: int,
    told: Callable[[int], None],
) -> None:
    dtype = np.dtype(np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32)
    count, number, digest = 0, 0, hashlib.sha256()
    with replacing(place / "ids.bin") as file:
        while batch := list(islice(texts, BATCH)):
            told(min(count, most))
            encoded = tokenizer([text.content for text in batch], add_special_tokens=False, verbose=False)
            for text, ids in zip(batch, encoded["input_ids"], strict=True):
                file.write(np.array([*between, *ids], dtype).tobytes())
                count += len(between) + len(ids)
                number += 1
                digest.update(text.content.encode("utf-8", "surrogateescape"))
            if count >= most:
                break
    if not count:
        raise ValueError("the text has no tokens")
    facts = {"tokens": count, "documents": number, "dtype": dtype.name, "sha256": digest.hexdigest()}
    with replacing(place / "text.json") as file:
        file.write(json.dumps(facts).encode())


@dataclass(frozen=True, eq=False)
class Corpus:
    """Sequences of ``length`` tokens, cut one after another from texts and never overlapping.

    Each begins with ``start`` and ends with ``end``. The last sequences of every text are held out: they are
    never trained on.
    ``shares`` say how often each text is drawn from, None in proportion to its size.
    """

    texts: tuple[TokenFile, ...]
    length: int
    start: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    shares: tuple[float, ...] | None = None

    @property
    def own(self) -> int:
        """Tokens of a sequence that are of the text."""
        return self.length - len(self.start) - len(self.end)

    @cached_property
    def counts(self) -> list[tuple[int, int]]:
        """Sequences of each text: to train on, and held out. ``ValueError`` where one is too short."""
        counts = []
        for text in self.texts:
            windows = len(text.ids) // self.own
            held = min(HELD, windows // 10)
            if held < 1:
                raise ValueError(
                    f"the text {text.source!r} has {len(text.ids)} tokens; {10 * self.own} are the least for "
                    f"sequences of {self.length} with one in ten held out: give more text, or less --length"
                )
            counts.append((windows - held, held))
        return counts

    def sequence(self, text: int, window: int) -> Tensor:
        """Return the tokens (length,) of a window of a text."""
        first = window * self.own
        ids = self.texts[text].ids[first : first + self.own].astype(np.int64)
        return torch.from_numpy(
            np.concatenate([np.array(self.start, np.int64), ids, np.array(self.end, np.int64)])
        )

    def held_out(self) -> Tokens:
        """Return the sequences that are never trained on."""
        return self._tokens([train for train, _ in self.counts])

    def whole(self) -> Tokens:
        """Return all sequences, of a text that nothing is trained on."""
        return self._tokens([0] * len(self.texts))

    def _tokens(self, firsts: Sequence[int]) -> Tokens:
        """Return the sequences of each text from one of them on."""
        rows = [
            self.sequence(text, window)
            for text, (first, counts) in enumerate(zip(firsts, self.counts, strict=True))
            for window in range(first, sum(counts))
        ]
        digest = hashlib.sha256("".join(text.sha256 for text in self.texts).encode()).hexdigest()
        return Tokens(torch.stack(rows), text=digest)

    def ordered(self, count: int, seed: int) -> Ints:
        """Return so many (text, window) pairs to train on, (count, 2), in an order fixed by the seed.

        No window of a text comes again before all of that text have come.
        """
        generator = np.random.default_rng(seed)
        sizes = [train for train, _ in self.counts]
        shares: Floats = np.array(self.shares or sizes, np.float64)
        ends = np.floor(np.cumsum(shares / shares.sum()) * count + 0.5).astype(np.int64)
        amounts = np.diff(ends, prepend=0)
        texts = generator.permutation(np.repeat(np.arange(len(sizes)), amounts))
        pairs = np.stack([texts, np.zeros_like(texts)], axis=1)
        for text, (size, amount) in enumerate(zip(sizes, amounts.tolist(), strict=True)):
            rounds = [generator.permutation(size) for _ in range(-(-amount // size))]
            pairs[texts == text, 1] = np.concatenate([*rounds, np.zeros(0, np.int64)])[:amount]
        return pairs

    def number(self, pairs: Ints) -> Ints:
        """Return the number (n,) of each (text, window) pair among all sequences of all texts."""
        firsts = np.cumsum([0] + [train for train, _ in self.counts])[:-1]
        return np.asarray(firsts[pairs[:, 0]] + pairs[:, 1], np.int64)


def batch_of(sequences: Sequences) -> tuple[Tensor, Tensor]:
    """Return all sequences as one batch: tokens (n, length) and their numbers (n,)."""
    samples = [sequences[place] for place in range(len(sequences))]
    ids, numbers = (torch.stack([sample[name] for sample in samples]) for name in ("input_ids", "number"))
    return ids, numbers


class Sequences(Dataset[dict[str, Tensor]]):
    """Sequences to train on, in order: ``input_ids`` (length,), and the ``number`` of each."""

    def __init__(self, corpus: Corpus, count: int, seed: int) -> None:
        self.corpus = corpus
        self.pairs = corpus.ordered(count, seed)
        self.numbers = corpus.number(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        text, window = self.pairs[place].tolist()
        return {
            "input_ids": self.corpus.sequence(text, window),
            "number": torch.tensor(int(self.numbers[place])),
        }
