"""Tokens of texts on the disk, memory-mapped, and the sequences that training takes from them in order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, default_collate
from transformers import PreTrainedTokenizerBase

from zerolm.architecture import Floats, Ints
from zerolm.io.files import cache_folder, replacing
from zerolm.progress import Progress, silent
from zerolm.settings.messages import plural
from zerolm.text.defaults import HELD
from zerolm.text.documents import Document, documents
from zerolm.text.encoding import chat_renderer, document_ids, edges, separator
from zerolm.text.record_texts import current_field
from zerolm.text.tokens import Tokens, cut

TOKENS_VERSION: Final = 1
AT_A_TIME: Final = 256
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
    """Return at most about ``most`` tokens of a text, from the cache where they are there already.

    Documents follow one another, each after what the tokenizer puts before a text, or else what it ends one
    with, if anything. ``ValueError`` where there is nothing to read.
    """
    between = separator(tokenizer, vocabulary)
    digest, texts = "", documents(source, chat_renderer(tokenizer))
    if Path(source).exists():
        local = list(texts)
        digest, texts = _digest(local), iter(local)
    reading = f"{current_field() or ''}{tokenizer.chat_template or ''}"
    content = f"{digest}{most}" if digest else f"{source} {most}{reading}"
    key = hashlib.sha256(f"{_identity(tokenizer)} {between}{content}".encode())
    place = cache_folder("tokens") / key.hexdigest()
    if not (place / "text.json").is_file():
        _write(place, texts, tokenizer, between, most, partial(progress, f"tokenizing {source}"))
    facts = json.loads((place / "text.json").read_text(encoding="utf-8"))
    ids = np.memmap(place / "ids.bin", np.dtype(facts["dtype"]), "r")
    if len(ids) != facts["tokens"]:
        raise ValueError(f"the cached tokens in {str(place)!r} are damaged: remove that folder")
    return TokenFile(source, digest or facts["sha256"], facts["documents"], ids)


def _identity(tokenizer: PreTrainedTokenizerBase) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rules = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    return f"{TOKENS_VERSION} {type(tokenizer).__name__} {rules}"


def _digest(texts: Sequence[Document]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        for part in (text.name, text.content, *(["chat"] if text.is_chat else [])):
            content = part.encode("utf-8", "surrogateescape")
            digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def _write(
    place: Path,
    texts: Iterator[Document],
    tokenizer: PreTrainedTokenizerBase,
    between: Sequence[int],
    most: int,
    report: Callable[[int, int], None],
) -> None:
    dtype = np.dtype(np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32)
    count, number, digest = 0, 0, hashlib.sha256()
    with replacing(place / "ids.bin") as file:
        while batch := list(islice(texts, AT_A_TIME)):
            report(min(count, most), most)
            rows = document_ids(tokenizer, batch, between)
            for text, ids in zip(batch, rows, strict=True):
                file.write(np.array(ids, dtype).tobytes())
                count += len(ids)
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
    never trained on. ``shares`` are the frequencies of texts, None in proportion to their sizes.
    """

    texts: tuple[TokenFile, ...]
    length: int
    start: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    shares: tuple[float, ...] | None = None

    @classmethod
    def of(
        cls,
        source: str,
        tokenizer: PreTrainedTokenizerBase,
        length: int,
        most: int,
        progress: Progress = silent,
        *,
        with_edges: bool = False,
    ) -> Corpus:
        """Return sequences of at most ``most`` tokens of one text; ``ValueError`` where it is too short.

        Each is, ``with_edges``, between what the tokenizer puts around a text.
        """
        start, end = edges(tokenizer) if with_edges else ((), ())
        corpus = cls((token_file(source, tokenizer, most, progress),), length, start, end)
        corpus.check_length()
        return corpus

    @property
    def size(self) -> int:
        """Tokens of a sequence that are of the text."""
        return self.length - len(self.start) - len(self.end)

    @property
    def sha256(self) -> str:
        """Return that of the first text."""
        return self.texts[0].sha256

    def check_length(self) -> None:
        """Raise ``ValueError`` where a text is too short to train on and to hold out of."""
        for text in self.texts:
            least = 10 * self.size
            if len(text.ids) < least:
                raise ValueError(
                    f"the text {text.source!r} has {plural(len(text.ids), 'token')}; {least} are the "
                    f"least for sequences of {self.length}, one in ten held out: give more text, or "
                    "less --length"
                )

    @cached_property
    def counts(self) -> list[tuple[int, int]]:
        """Sequences of each text: to train on, and held out. ``ValueError`` where one is too short."""
        self.check_length()
        windows = [len(text.ids) // self.size for text in self.texts]
        return [(count - min(HELD, count // 10), min(HELD, count // 10)) for count in windows]

    def tokens_in(self, text: int, windows: Ints) -> int:
        """Return the number of tokens in windows (n,) of a text, with those around them."""
        return len(windows) * self.length

    def sequence(self, text: int, window: int) -> Tensor:
        """Return the tokens (length,) of a window of a text."""
        return cut(self.texts[text].ids, [window * self.size], self.size, self.start, self.end)[0]

    def held_out(self) -> Tokens:
        """Return the sequences that are never trained on."""
        return self._tokens([train for train, _ in self.counts])

    def whole(self) -> Tokens:
        """Return all sequences, of a text that nothing is trained on."""
        return self._tokens([0] * len(self.texts))

    def _tokens(self, firsts: Sequence[int]) -> Tokens:
        rows = [
            self.sequence(text, window)
            for text, (first, counts) in enumerate(zip(firsts, self.counts, strict=True))
            for window in range(first, sum(counts))
        ]
        digest = hashlib.sha256("".join(text.sha256 for text in self.texts).encode()).hexdigest()
        return Tokens(torch.stack(rows), text=digest)

    def ordered(self, count: int, seed: int) -> Ints:
        """Return ``count`` (text, window) pairs to train on, (count, 2), in an order fixed by the seed.

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

    def grouped(self, pairs: Ints, batch: int, seed: int) -> Ints:
        """Return (text, window) pairs in the order in which batches take them: as they are."""
        return pairs

    @property
    def usual_length(self) -> int:
        """Return the tokens of a sequence, without padding, on the average."""
        return self.length

    def number(self, pairs: Ints) -> Ints:
        """Return the number (n,) of each (text, window) pair among all sequences of all texts."""
        firsts = np.cumsum([0] + [train for train, _ in self.counts])[:-1]
        return np.asarray(firsts[pairs[:, 0]] + pairs[:, 1], np.int64)


def batch_of(sequences: Sequences) -> tuple[Tensor, Tensor]:
    """Return all sequences as one batch: tokens (n, length) and their numbers (n,)."""
    batch = default_collate([sequences[place] for place in range(len(sequences))])
    return batch["input_ids"], batch["number"]


class Sequences(Dataset[dict[str, Tensor]]):
    """Sequences to train on, in order: ``input_ids`` (length,), and the ``number`` of each.

    Those of a ``batch`` follow one another.
    """

    def __init__(self, corpus: Corpus, count: int, seed: int, batch: int = 1) -> None:
        self.corpus = corpus
        self.pairs = corpus.grouped(corpus.ordered(count, seed), batch, seed)
        self.numbers = corpus.number(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        text, window = self.pairs[place].tolist()
        return {
            "input_ids": self.corpus.sequence(text, window),
            "number": torch.tensor(int(self.numbers[place])),
        }
