"""Bringing the published benchmarks into the cache: fetched, checked, converted, and only then stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from zerolm.groundtruth.cache import cache_folder
from zerolm.groundtruth.download.archive import Files, digest, read_folders
from zerolm.groundtruth.download.convert import check_torch, convert
from zerolm.groundtruth.download.fetch import mirrored, opened
from zerolm.groundtruth.reader import read
from zerolm.groundtruth.sources import SOURCES, Source
from zerolm.io.files import store
from zerolm.progress import Progress, silent

MAX_FILE: Final = 8 << 20
MAX_ARCHIVE: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class Stored:
    """A benchmark in the cache: its file with its SHA-256, its origin, and whether it was fetched now."""

    name: str
    path: str
    sha256: str
    licence: str
    source: dict[str, str]
    fetched: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def download(names: Sequence[str] = (), *, force: bool = False, progress: Progress = silent) -> list[Stored]:
    """Bring benchmarks, all of them if none is named, into the user's cache.

    What is there and up to date is kept unless ``force``. When anything fails, ``ValueError`` says what, and
    nothing is written or replaced.
    """
    sources = [_source(name) for name in dict.fromkeys(names or SOURCES)]
    missing = [source for source in sources if force or not _is_current(source)]
    check_torch(missing)
    texts: dict[Path, str] = {}
    small_first = sorted(missing, key=lambda source: (source.pinned.is_folder, source.urls))
    for _, group in groupby(small_first, lambda source: source.urls):
        for source, content in _fetch(list(group), progress):
            progress(f"converting {source.name}")
            texts[_path(source)] = json.dumps(convert(source, content), allow_nan=False) + "\n"
    store(texts)
    return [_stored(source, source in missing) for source in sources]


def _source(name: str) -> Source:
    if name not in SOURCES:
        raise ValueError(f"benchmark {name!r} cannot be downloaded; there are {', '.join(SOURCES)}")
    return SOURCES[name]


def _path(source: Source) -> Path:
    return cache_folder() / f"{source.name}.json"


def _is_current(source: Source) -> bool:
    try:
        return read(_path(source)).source == source.record()
    except ValueError:
        return False


def _fetch(sources: Sequence[Source], progress: Progress) -> list[tuple[Source, bytes | Files]]:
    """The content of the sources behind the same addresses, each with the checksum that it must have."""
    first = sources[0]
    if first.pinned.is_folder:
        with opened(first.urls[0], MAX_ARCHIVE, progress) as body:
            folders = read_folders(body, [source.pinned.path for source in sources])
        for source in sources:
            _verify(source, digest(source.pinned.path, folders[source.pinned.path]))
        return [(source, folders[source.pinned.path]) for source in sources]
    contents = []
    for url in first.urls:
        with opened(url, MAX_FILE, progress) as body:
            contents.append(body.read_all())
    if not first.pinned.parts:
        _verify(first, hashlib.sha256(contents[0]).hexdigest())
        return [(first, contents[0])]
    files = dict(zip(first.pinned.parts, contents, strict=True))
    _verify(first, digest("", files))
    return [(first, files)]


def _verify(source: Source, sha256: str) -> None:
    if sha256 != source.pinned.sha256:
        raise ValueError(
            f"{source.pinned.path} of {mirrored(source.urls[0])} has a wrong checksum: its SHA-256 is "
            f"{sha256}, but {source.pinned.sha256} is pinned"
        )


def _stored(source: Source, fetched: bool) -> Stored:
    path = _path(source)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Stored(source.name, str(path), sha256, source.upstream.licence, source.record(), fetched)
