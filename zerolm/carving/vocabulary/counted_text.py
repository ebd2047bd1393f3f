"""How often each token is met in all of a text, which streams; what was counted once is kept in the cache."""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from tokenizers import Tokenizer

from zerolm.architecture import Ints
from zerolm.carving.vocabulary.tokenizer_files import TokenizerFiles
from zerolm.io.cache import ArrayCache
from zerolm.io.files import sha256_of
from zerolm.networks.opener import is_decoder, one_line, stock_tokenizer
from zerolm.progress import Progress, silent
from zerolm.text.documents import check_plain, documents
from zerolm.text.encoding import chat_renderer
from zerolm.text.record_texts import Render
from zerolm.text.records import holds_records
from zerolm.text.unpacked_files import blocks

COUNTS_VERSION: Final = 1
PIECE: Final = 1 << 16
"""Characters at most, about, that are encoded as one text."""
AT_ONCE: Final = 32
PAUSE: Final = re.compile(r"\n(?=\S)")
"""Where a text is parted: no run of spaces or of empty lines is."""


def token_counts_of(files: TokenizerFiles, source: str, progress: Progress = silent) -> Ints:
    """Return how often each row of the embedding is met in a text, (rows,); tokens around a text are not.

    ``source`` is a file of any size, a folder, or a data set of the hub. A decoder reads it as it runs, an
    encoder line by line. What chats and prompts of the folder begin with is counted once, too. ``ValueError``
    where there is nothing to read, or it is no text in UTF-8.
    """
    rows, tokenizer = files.checkpoint.layout.vocab, plain(files)
    by_line = not is_decoder(files.checkpoint)
    counts = np.zeros(rows, np.int64)
    add(counts, tokenizer, list(_around(files)))
    file = Path(source)
    if not file.is_file() or holds_records(file):
        render = chat_renderer(stock_tokenizer(files.folder))
        for pieces in _batches(_texts(source, render), by_line):
            add(counts, tokenizer, pieces)
        return counts
    key = hashlib.sha256(tokenizer.to_str().encode()).hexdigest(), sha256_of(file), rows, by_line
    cache = ArrayCache.of("token counts", COUNTS_VERSION, *key)
    stored = (cache.get("counts") or {}).get("counts")
    if stored is not None and stored.shape == (rows,):
        return counts + stored
    of_text, size, done = np.zeros(rows, np.int64), file.stat().st_size, 0
    for pieces in _batches(streamed(file), by_line):
        progress("counting tokens", min(done, size), size)
        add(of_text, tokenizer, pieces)
        done += sum(len(piece.encode()) for piece in pieces)
    if not of_text.any():
        raise ValueError(f"{file} is empty")
    cache.put("counts", {"counts": of_text})
    return counts + of_text


def plain(files: TokenizerFiles) -> Any:
    """Return the tokenizer as transformers has it, without padding and truncation."""
    tokenizer = Tokenizer.from_str(stock_tokenizer(files.folder).backend_tokenizer.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def add(counts: Ints, tokenizer: Any, pieces: list[str]) -> None:
    """Add the tokens of texts to counts; ``ValueError`` for one beyond them."""
    with one_line("the text with its tokenizer"):
        encoded = tokenizer.encode_batch_fast(pieces, add_special_tokens=False)
    for one in encoded:
        ids = np.array(one.ids, np.int64)
        if len(ids) and ids.max() >= len(counts):
            raise ValueError(f"the tokenizer gives token {ids.max()}, but the model has {len(counts)}")
        counts += np.bincount(ids, minlength=len(counts))


def streamed(file: Path) -> Iterator[str]:
    """Yield a file of UTF-8 in pieces; ``ValueError`` where it is none, by the byte that is wrong."""
    decoder, left, start, size = codecs.getincrementaldecoder("utf-8")(), "", 0, 0
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
        *whole, left = _parted(left + text)
        yield from whole
    if decoder.getstate()[0]:
        raise ValueError(f"{file} is not text in UTF-8: byte {start} is wrong")
    yield from filter(None, [left])


def _parted(text: str) -> Iterator[str]:
    """Yield a text in parts of about ``PIECE`` characters, each ending where a line does."""
    start = 0
    while len(text) - start > PIECE:
        pause = PAUSE.search(text, start + PIECE)
        if pause is None:
            break
        yield text[start : pause.end()]
        start = pause.end()
    yield text[start:]


def _texts(source: str, render: Render) -> Iterator[str]:
    for document in documents(source, render):
        yield from _parted(document.content)


def _batches(texts: Iterable[str], by_line: bool) -> Iterator[list[str]]:
    """Yield texts, or their lines, some at a time."""
    if by_line:
        for text in texts:
            yield [line.strip() for line in text.splitlines() if line.strip()]
        return
    several: list[str] = []
    for text in texts:
        several.append(text)
        if len(several) == AT_ONCE:
            yield several
            several = []
    yield several


def _around(files: TokenizerFiles) -> Iterator[str]:
    """Yield what a folder puts around texts: its templates of chats, and the prompts of sentences."""
    template = stock_tokenizer(files.folder).chat_template
    templates = template.values() if isinstance(template, dict) else [template]
    yield from (text for text in templates if isinstance(text, str))
    prompts = files.prompts
    yield from (text for text in prompts if text)
