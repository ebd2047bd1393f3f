"""Texts to train on: a file, a folder of files, or a data set of the hub, document by document."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MAX_TEXT: Final = 256 << 20
HUB: Final = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(?::(?P<config>[\w.-]+))?(?::(?P<split>[\w.\[\]:%-]+))?")
"""``owner/name``, ``owner/name:config`` or ``owner/name:config:split``."""
COLUMN: Final = "text"
MOST_FILES: Final = 1 << 20
PATIENCE: Final = 20.0
"""Seconds that the hub may take to say whether it has a data set."""


@dataclass(frozen=True)
class Text:
    """A text and the SHA-256 of the file that it came from."""

    content: str
    sha256: str


@dataclass(frozen=True)
class Document:
    """A text and its name: that of its file within its folder, or its number in a data set."""

    name: str
    content: str


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


def whole_text(source: Path) -> Text:
    """Return a file, or the files of a folder one after another; ``ValueError`` as for one file."""
    if not source.is_dir():
        return read_text(source)
    parts, size = list[str](), 0
    for document in _of_folder(source):
        parts.append(document.content)
        size += len(document.content)
        if size > MAX_TEXT:
            raise ValueError(f"{source} has more than {MAX_TEXT >> 20} MiB; a part of it does")
    content = "\n".join(parts)
    return Text(content, hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest())


def documents(source: str) -> Iterator[Document]:
    """Yield the documents of a source in an order that does not depend on where it lies.

    A folder yields every file of UTF-8 text in it, at any depth, without hidden ones and links; they are in
    the order of the SHA-256 of their names, which is as good as drawn. A data set of the hub streams, with
    its column ``text``. ``ValueError``, in one line, where there is nothing to read.
    """
    place = Path(source)
    if place.is_dir():
        yield from _of_folder(place)
    elif place.exists():
        yield Document(place.name, read_text(place).content)
    elif HUB.fullmatch(source):
        yield from _of_hub(source)
    else:
        raise ValueError(
            f"the text {source!r} does not exist; a file, a folder or owner/name of the hub does"
        )


def is_local(source: str) -> bool:
    """Return whether a source is a file or a folder of this machine."""
    return Path(source).exists()


def _of_folder(folder: Path) -> Iterator[Document]:
    names = sorted((path.relative_to(folder).as_posix() for path in _files(folder)), key=_drawn)
    count = 0
    for name in names:
        try:
            content = read_text(folder / name).content
        except ValueError:  # not text, empty, or too long
            continue
        count += 1
        yield Document(name, content)
    if not count:
        raise ValueError(f"the folder {str(folder)!r} holds no files of UTF-8 text")


def _files(folder: Path) -> Iterator[Path]:
    """Yield the regular files below a folder, but for hidden ones and what lies behind links."""
    for count, (place, folders, files) in enumerate(os.walk(folder)):
        if count > MOST_FILES:
            raise ValueError(f"the folder {str(folder)!r} holds more than {MOST_FILES} folders")
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(place) / name
            if not name.startswith(".") and not path.is_symlink() and path.is_file():
                yield path


def _drawn(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()


def check_on_hub(name: str) -> None:
    """Ask the hub for a data set once; reading it would try again and again, and say so each time."""
    from huggingface_hub import HfApi

    HfApi().dataset_info(name, timeout=PATIENCE)


def _of_hub(source: str) -> Iterator[Document]:
    match = HUB.fullmatch(source)
    assert match is not None
    try:
        from datasets import load_dataset
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{source!r} is no file or folder, and data sets of the hub need datasets: "
            "pip install 'zerolm[train]'"
        ) from None
    try:
        check_on_hub(match["name"])
        rows: Any = load_dataset(
            match["name"], match["config"], split=match["split"] or "train", streaming=True
        )
        for number, row in enumerate(rows):
            if COLUMN not in row:
                raise ValueError(f"it has the columns {', '.join(row)}, and no {COLUMN!r}")
            yield Document(str(number), str(row[COLUMN]))
    except Exception as error:  # the library raises what it will
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ValueError(f"the data set {source!r} cannot be read: {reason}") from None
