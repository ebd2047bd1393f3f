"""Bytes of text files, unpacked where they are gzipped."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PACKED: Final = ".gz"
READ_BYTES: Final = 1 << 20
LONGEST_LINE: Final = 64 << 20
"""Bytes of a line at most."""


def form_of(file: Path | str) -> str:
    """Return the ending of a file's name that specifies its format, without ``.gz``: ``.jsonl``, ``.txt``."""
    path = Path(file)
    inner = path.with_suffix("") if path.suffix.lower() == PACKED else path
    return inner.suffix.lower()


def blocks(file: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks of 1 MiB at most, unpacked if its name ends in ``.gz``.

    ``ValueError`` where it cannot be read.
    """
    try:
        if file.exists() and not file.is_file():
            raise ValueError(f"{file} is not a regular file")
        is_packed = file.suffix.lower() == PACKED
        with gzip.open(file) if is_packed else file.open("rb") as opened:
            while block := opened.read(READ_BYTES):
                yield block
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"the text {str(file)!r} is no sound gzip file: {error}") from None
    except OSError as error:
        raise ValueError(f"the text {str(file)!r} cannot be read: {error.strerror}") from None


def text_in(file: Path, most: int) -> str:
    """Return a whole file as text; ``ValueError`` where it has more than ``most`` bytes, or is no UTF-8."""
    content = bytearray()
    for block in blocks(file):
        content += block
        if len(content) > most:
            raise ValueError(too_long(file, most))
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not text in UTF-8: byte {error.start} is wrong") from None


def too_long(source: Path, most: int) -> str:
    return f"{source} has more than {most >> 20} MiB; a part of it does"


def lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 file that are not blank, with their numbers from 1.

    ``ValueError`` names a line that is no UTF-8 or has more than 64 MiB.
    """
    number, rest = 0, b""
    for block in blocks(file):
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            number += 1
            yield from _decoded(file, number, line)
        if len(rest) > LONGEST_LINE:
            raise ValueError(f"{str(file)!r}, line {number + 1} has more than {LONGEST_LINE >> 20} MiB")
    yield from _decoded(file, number + 1, rest)


def _decoded(file: Path, number: int, line: bytes) -> Iterator[tuple[int, str]]:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"{str(file)!r}, line {number} is not UTF-8: byte {error.start} is wrong") from None
    if text:
        yield number, text
