"""Texts to train on: a file, a folder of files, or a data set of the hub, document by document."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zerolm.io.brief import one_line
from zerolm.io.hub import PATIENCE, hub_problem
from zerolm.text.record_texts import Render, current_field, text_fields, text_of
from zerolm.text.records import JSON, check_is_text, holds_records, records_of
from zerolm.text.unpacked_files import form_of, text_in, too_long

MAX_TEXT: Final = 256 << 20
HUB: Final = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(?::(?P<config>[\w.-]+))?(?::(?P<split>[\w.\[\]:%-]+))?")
"""``owner/name``, ``owner/name:config`` or ``owner/name:config:split``."""
MOST_FILES: Final = 1 << 20


@dataclass(frozen=True)
class Document:
    """A text and its name: that of its file within its folder, or its number in a data set.

    ``is_chat`` of one that a chat template rendered, which marks where it begins and ends.
    """

    name: str
    content: str
    is_chat: bool = False


@dataclass(frozen=True)
class Text:
    """A text and the SHA-256 of the file that it came from; of records that of their texts.

    ``records`` are its documents where it has several.
    """

    content: str
    sha256: str
    records: tuple[Document, ...] = ()

    @property
    def documents(self) -> tuple[Document, ...]:
        """Return the documents, one of a plain text."""
        return self.records or (Document("", self.content),)

    @classmethod
    def of(cls, documents: Sequence[Document]) -> Text:
        """Return a text of several documents, hashed with where each ends."""
        digest = hashlib.sha256()
        for document in documents:
            content = document.content.encode("utf-8", "surrogateescape")
            digest.update(len(content).to_bytes(8, "little") + content)
        return cls("\n".join(one.content for one in documents), digest.hexdigest(), tuple(documents))


def read_file(file: Path) -> Text:
    """Read a UTF-8 file as it stands; ``ValueError`` where it cannot be read, is empty, no text or too long.

    One whose name ends in ``.gz`` is unpacked, to 256 MiB at most; its hash is that of the plain file.
    """
    content = text_in(file, MAX_TEXT)
    if "\0" in content:
        raise ValueError(f"{file} is not text: it holds zero bytes")
    if not content.strip():
        raise ValueError(f"{file} is empty")
    return Text(content, hashlib.sha256(content.encode()).hexdigest())


def read_text(file: Path, render: Render | None = None) -> Text:
    """Read a text: a plain one, or the records of a file or of a saved data set, as ``documents`` does."""
    if holds_records(file):
        return Text.of(list(_of_records(file, file.name, render)))
    text = read_file(file)
    check_plain(file, text.content)
    return text


def check_plain(file: Path, beginning: str) -> None:
    """Raise ``ValueError`` for a plain text that begins as JSON does, or of which a field is named."""
    check_is_text(file, beginning)
    if current_field() is not None:
        raise ValueError(
            f"{str(file)!r} is plain text and has no fields: leave --text-field out, or give .jsonl, .json, "
            ".parquet or a saved data set"
        )


def whole_text(source: Path, render: Render | None = None) -> Text:
    """Return a file, or the files of a folder one after another; ``ValueError`` as for one file."""
    if not source.is_dir() or holds_records(source):
        return read_text(source, render)
    parts, size = list[Document](), 0
    for document in _of_folder(source, render):
        parts.append(document)
        size += len(document.content)
        if size > MAX_TEXT:
            raise ValueError(too_long(source, MAX_TEXT))
    if any(part.is_chat for part in parts):
        return Text.of(parts)
    content = "\n".join(part.content for part in parts)
    return Text(content, hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest())


def documents(source: str, render: Render | None = None) -> Iterator[Document]:
    """Yield the documents of a source in an order that does not depend on where it lies.

    A file of JSON lines, JSON or Parquet, or a folder that ``Dataset.save_to_disk`` wrote, yields each record
    (``text_fields``); ``render`` gives the text of messages. Another folder yields every file of UTF-8 text
    in it, at any depth, without hidden ones and links, records of JSON lines and Parquet one by one; they are
    in the order of the SHA-256 of their names, which is as good as drawn. A data set of the hub streams.
    ``ValueError``, in one line, where there is nothing to read.
    """
    place = Path(source)
    if holds_records(place) and place.exists():
        yield from _of_records(place, place.name, render)
    elif place.is_dir():
        yield from _of_folder(place, render)
    elif place.exists():
        yield Document(place.name, read_text(place).content)
    else:
        check_exists(source)
        yield from _of_hub(source, render)


def check_exists(source: str) -> None:
    """Raise ``ValueError`` where a text is neither on disk nor named as a data set of the hub is."""
    if not Path(source).exists() and not HUB.fullmatch(source):
        raise ValueError(
            f"the text {source!r} does not exist; a file, a folder or owner/name of the hub does"
        )


def _of_records(place: Path, name: str, render: Render | None) -> Iterator[Document]:
    """Yield the texts of records, at least one and 256 MiB at most; ``name`` begins the names of all."""
    records = records_of(place)
    fields = text_fields(str(place), records.fields)
    size = 0
    for number, (where, row) in enumerate(records.rows(fields), 1):
        content, is_chat = text_of(where, row, fields, render)
        if not content.strip():
            continue
        if "\0" in content:
            raise ValueError(f"{where} is not text: it holds zero bytes")
        size += len(content)
        if size > MAX_TEXT:
            raise ValueError(too_long(place, MAX_TEXT))
        yield Document(f"{name}#{number}", content, is_chat)
    if not size:
        raise ValueError(f"{place} is empty")


def _of_folder(folder: Path, render: Render | None) -> Iterator[Document]:
    names = sorted((path.relative_to(folder).as_posix() for path in _files(folder)), key=_drawn)
    count, skipped = 0, None
    for name in names:
        file = folder / name
        try:
            are_records = _are_records(file)
            content = "" if are_records else read_file(file).content
        except ValueError as error:  # not text, empty, or too long; or of no field that is known
            skipped = error if holds_records(file) else skipped
            continue
        for document in _of_records(file, name, render) if are_records else [Document(name, content)]:
            count += 1
            yield document
    if not count:
        raise skipped or ValueError(f"the folder {str(folder)!r} holds no files of UTF-8 text")


def _are_records(file: Path) -> bool:
    """Return whether a file of a folder is read record by record; ``ValueError`` where no field is known.

    Of ``.json`` only arrays with a known field are: most others are settings of programs.
    """
    if not holds_records(file):
        return False
    if form_of(file) == JSON and not read_file(file).content.removeprefix("\ufeff").lstrip().startswith("["):
        return False
    try:
        text_fields(str(file), records_of(file).fields)
    except ValueError:
        if form_of(file) == JSON:
            return False
        raise
    return True


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
    problem = hub_problem(lambda api: api.dataset_info(name, timeout=PATIENCE))
    if problem:
        raise ValueError(problem)


def _of_hub(source: str, render: Render | None) -> Iterator[Document]:
    match = HUB.fullmatch(source)
    assert match is not None
    try:
        from datasets import load_dataset
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{source!r} is no file or folder, and data sets of the hub need datasets: "
            "pip install 'zerolm[train]'"
        ) from None
    with one_line(f"the data set {source!r}"):
        check_on_hub(match["name"])
        rows: Any = load_dataset(
            match["name"], match["config"], split=match["split"] or "train", streaming=True
        )
        fields: tuple[str, ...] = ()
        for number, row in enumerate(rows):
            fields = fields or text_fields(source, tuple(row))
            content, is_chat = text_of(f"row {number + 1}", row, fields, render)
            yield Document(str(number), content, is_chat)
