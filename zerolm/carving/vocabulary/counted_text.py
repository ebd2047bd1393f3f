"""Counts of each token in a whole text, which is streamed; counts are cached."""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from tokenizers import Tokenizer

from zerolm.architecture import Ints
from zerolm.carving.vocabulary.tokenizer_files import TokenizerFiles, plain_document
from zerolm.io.brief import one_line
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.io.files import sha256_of
from zerolm.networks.opener import is_decoder, stock_tokenizer
from zerolm.progress import Progress, silent
from zerolm.text.documents import check_plain, documents
from zerolm.text.encoding import PIECE, chat_renderer, parted
from zerolm.text.records import holds_records
from zerolm.text.unpacked_files import blocks

COUNTS_VERSION: Final = 2
COUNTING: Final = "counting tokens"
HELD: Final = 10
"""One in ``HELD`` pieces of a text is held out."""
PIECES: Final = 64
"""Largest number of pieces of a text that are stored to be read again."""
LEAST_PIECE: Final = 1 << 9
AT_ONCE: Final = 32


@dataclass(frozen=True, eq=False)
class CountedText:
    """Counts of each row of an embedding in a text, (rows,): in its ``fitted`` and its ``held``-out part.

    Tokens are chosen on the fitted part where their loss is measured on the other one. Some pieces of both
    are stored. Nothing is held out of a short text.
    """

    fitted: Ints
    held: Ints
    fitted_pieces: tuple[str, ...]
    held_pieces: tuple[str, ...]

    @property
    def whole(self) -> Ints:
        return self.fitted + self.held


class _SomePieces:
    """Some of a text's pieces, evenly spread."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.step, self.met = 1, 0

    def add(self, piece: str) -> None:
        if self.met % self.step == 0:
            self.pieces.append(piece)
        self.met += 1
        if len(self.pieces) > PIECES:
            self.pieces, self.step = self.pieces[::2], 2 * self.step


def token_counts_of(files: TokenizerFiles, source: str, progress: Progress = silent) -> CountedText:
    """Return the counts of each row of the embedding in a text; tokens around a text are not counted.

    ``source`` is a file of any size, a folder, or a data set of the hub. A decoder reads it as one stream, an
    encoder line by line. The folder's chat templates and prompts are counted once, too. One piece in ``HELD``
    is held out. Raises ``ValueError`` where there is nothing to read, or the text is not UTF-8.
    """
    rows = files.checkpoint.layout.vocab
    tokenizer = Tokenizer.from_str(json.dumps(plain_document(files.checkpoint)))
    by_line = not is_decoder(files.checkpoint)
    around = np.zeros(rows, np.int64)
    add(around, tokenizer, list(_around(files)))
    file = Path(source)
    if not file.is_file() or holds_records(file):
        render = chat_renderer(stock_tokenizer(files.folder))
        pieces = (part for document in documents(source, render) for part in parted(document.content))
        text = _counted(pieces, tokenizer, rows, by_line)
        return replace(text, fitted=text.fitted + around)

    def counts() -> Arrays:
        size = file.stat().st_size
        pieces = streamed(file, min(PIECE, max(LEAST_PIECE, size // (4 * HELD))))
        text = _counted(pieces, tokenizer, rows, by_line, lambda done: progress(COUNTING, done, size))
        if not text.whole.any():
            raise ValueError(f"{file} is empty")
        return _packed(text)

    key = hashlib.sha256(tokenizer.to_str().encode()).hexdigest(), sha256_of(file), rows, by_line
    text = _unpacked(ArrayCache.of("token counts", COUNTS_VERSION, *key).once("counts", counts))
    return replace(text, fitted=text.fitted + around)


def _counted(
    pieces: Iterable[str],
    tokenizer: Any,
    rows: int,
    by_line: bool,
    progress: Callable[[int], None] = lambda done: None,
) -> CountedText:
    """Return the counts of a text in pieces; the last of every ``HELD`` is held out."""
    counts, some = np.zeros((2, rows), np.int64), (_SomePieces(), _SomePieces())
    waiting: tuple[list[str], list[str]] = [], []
    done = 0
    for number, piece in enumerate(pieces):
        held = int(number % HELD == HELD - 1)
        some[held].add(piece)
        parts = filter(None, map(str.strip, piece.splitlines())) if by_line else [piece]
        waiting[held].extend(parts)
        done += len(piece.encode())
        if len(waiting[held]) >= AT_ONCE:
            progress(done)
            add(counts[held], tokenizer, waiting[held])
            waiting[held].clear()
    for row, rest in zip(counts, waiting, strict=True):
        add(row, tokenizer, rest)
    return CountedText(counts[0], counts[1], *(tuple(each.pieces) for each in some))


def _packed(text: CountedText) -> Arrays:
    """Return a text as arrays: pieces contain no zero bytes."""
    parts = ("\0".join(each) for each in (text.fitted_pieces, text.held_pieces))
    joined = "\0\0".join(parts).encode("utf-8", "surrogatepass")
    return {"fitted": text.fitted, "held": text.held, "pieces": np.frombuffer(joined, np.uint8)}


def _unpacked(arrays: Arrays) -> CountedText:
    parts = arrays["pieces"].tobytes().decode("utf-8", "surrogatepass").split("\0\0")
    pieces = (tuple(filter(None, part.split("\0"))) for part in parts)
    return CountedText(arrays["fitted"], arrays["held"], *pieces)


def add(counts: Ints, tokenizer: Any, pieces: list[str]) -> None:
    """Add the tokens of texts to counts; ``ValueError`` for an id beyond them."""
    with one_line("the text with its tokenizer"):
        encoded = tokenizer.encode_batch_fast(pieces, add_special_tokens=False)
    for encoding in encoded:
        ids = np.array(encoding.ids, np.int64)
        if len(ids) and ids.max() >= len(counts):
            raise ValueError(f"the tokenizer gives token {ids.max()}, but the model has {len(counts)}")
        counts += np.bincount(ids, minlength=len(counts))


def streamed(file: Path, length: int = PIECE) -> Iterator[str]:
    """Yield a file in pieces of about ``length`` characters; ``ValueError`` for a byte that is not UTF-8."""
    decoder, rest, start, size = codecs.getincrementaldecoder("utf-8")(), "", 0, 0
    for block in blocks(file):
        try:
            text = decoder.decode(block)
        except UnicodeDecodeError as error:
            raise ValueError(f"{file} is not text in UTF-8: byte {start + error.start} is wrong") from None
        if not size:
            check_plain(file, text)
        size += len(block)
        start = size - len(decoder.getstate()[0])
        if "\0" in text:
            raise ValueError(f"{file} is not text: it holds zero bytes")
        *whole, rest = parted(rest + text, length)
        yield from whole
    if decoder.getstate()[0]:
        raise ValueError(f"{file} is not text in UTF-8: byte {start} is wrong")
    yield from filter(None, [rest])


def _around(files: TokenizerFiles) -> Iterator[str]:
    """Yield the texts that a folder adds to others: its chat templates, and prompts of sentences."""
    template = stock_tokenizer(files.folder).chat_template
    templates = template.values() if isinstance(template, dict) else [template]
    yield from (text for text in templates if isinstance(text, str))
    yield from filter(None, files.prompts)
