"""The text of ``llama_small``: Python's standard library and English documentation of a Debian machine.

Every figure bears the SHA-256 of the text that it was measured on, for the same packages at other versions
give another text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from corpus import library, seen_files, unseen_files

ENGLISH: Final = (
    ("git", "/usr/share/doc/git", "**/*.txt"),
    ("cmake", "/usr/share/cmake-3.25/Help", "**/*.rst"),
    ("npm", "/usr/lib/node_modules/npm/docs", "**/*.md"),
    ("vim", "/usr/share/vim/vim90/doc", "*.txt"),
)
"""Folders of documentation, as Debian 12 has them (git, cmake-data, nodejs, vim-runtime)."""
JUDGED: Final = 240_000
"""Bytes of each half that networks are judged on, in whole documents."""
LARGEST: Final = 20_000
"""Bytes of a document to judge on, at most: else a few of them would be all."""

Named = tuple[str, Path]


def python(files: Iterable[Path]) -> list[Named]:
    return _drawn(("python/" + file.relative_to(library()).as_posix(), file) for file in files)


def english() -> list[Named]:
    """Return the documents in an order as good as drawn; ``FileNotFoundError`` where a folder is missing."""
    named = []
    for name, folder, pattern in ENGLISH:
        files = [file for file in Path(folder).glob(pattern) if file.is_file() and not file.is_symlink()]
        if not files:
            raise FileNotFoundError(
                f"{folder} holds no {pattern}: the text of llama_small cannot be made here"
            )
        named += [(f"{name}/{file.relative_to(folder).as_posix()}", file) for file in files]
    return _drawn(named)


def texts(work: Path) -> tuple[Path, Path]:
    """Return a folder to train on and one to judge on, which share no document."""
    trained, judged = divided()
    parts = (("text", trained), ("held_out", judged))
    first, second = (_folder(work / place, [*python, *english]) for place, (python, english) in parts)
    return first, second


def divided() -> tuple[tuple[list[Named], list[Named]], tuple[list[Named], list[Named]]]:
    """Return Python and English documents to train on, and those to judge on."""
    judged = [*_first(python(unseen_files()))], [*_first(english())]
    named = {name for each in judged for name, _ in each}
    whole = python(seen_files()), english()
    left = ([(name, file) for name, file in each if name not in named] for each in whole)
    return (next(left), next(left)), judged


def _drawn(named: Iterable[Named]) -> list[Named]:
    return sorted(named, key=lambda pair: hashlib.sha256(pair[0].encode()).hexdigest())


def _first(named: Iterable[Named]) -> Iterator[Named]:
    """Yield documents that are not too large until they are enough."""
    total = 0
    for name, file in named:
        size = file.stat().st_size
        if size <= LARGEST and total < JUDGED:
            total += size
            yield name, file


def _folder(place: Path, named: Iterable[Named]) -> Path:
    """Return the folder of these documents, written once."""
    if not place.exists():
        making = place.with_suffix(".making")
        making.mkdir(parents=True, exist_ok=True)
        for name, file in named:
            content = file.read_text("utf-8", errors="replace").replace("\0", "")
            (making / name.replace("/", "_")).write_text(content, encoding="utf-8")
        making.rename(place)
    return place
