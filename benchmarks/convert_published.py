"""Make zerolm's published benchmarks from their authors' files: ``convert_published.py FOLDER``.

The folder holds, as their authors have them, ``BERT_benchmark.json``, ``gt_autoformer.pth``, ``gt_pit.pth``,
``lts_saved_logs.tar.gz`` (the folder ``saved_logs`` of archai) and, in ``gemstones/``, the files of the
Gemstones by their path in the repository. What is not there is left as it is. Every file is compared with its
pinned SHA-256 before it is read, and written to ``zerolm/groundtruth/shipped``.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from published.convert import Files, convert
from published.sources import SOURCES, Source

from zerolm.groundtruth.reader import SHIPPED

ARCHIVE: Final = "lts_saved_logs.tar.gz"
LARGEST_FILE: Final = 1 << 18
USED: Final = re.compile(r"(?:ppl|params)_summary\.yaml|config_[0-9]{1,4}/j[0-9]{1,4}/model_config\.yaml")
"""The files of a folder of archai that are read: each architecture's configuration, what became of all."""


def contents(folder: Path) -> dict[str, bytes | Files]:
    """Return what the converter of each benchmark is given, of those whose files are there."""
    files: dict[str, bytes | Files] = {}
    logs = _folders(folder / ARCHIVE) if (folder / ARCHIVE).is_file() else {}
    for name, source in SOURCES.items():
        file, place = folder / Path(source.pinned.path).name, source.pinned.path.rpartition("/")[2]
        parts = {part: folder / "gemstones" / part for part in source.pinned.parts}
        if source.pinned.is_folder:
            if place in logs:
                files[name] = logs[place]
        elif parts:
            if all(path.is_file() for path in parts.values()):
                files[name] = {part: path.read_bytes() for part, path in parts.items()}
        elif file.is_file():
            files[name] = file.read_bytes()
    return files


def _folders(archive: Path) -> dict[str, Files]:
    """Return the files used of each folder ``random_*`` of the archive, by path within it."""
    folders: dict[str, Files] = {}
    with tarfile.open(archive) as logs:
        for member in logs:
            match = re.fullmatch(r"(?:.*/)?(random_\w+)/(.+)", member.name)
            if match is None or not USED.fullmatch(match[2]):
                continue
            if not member.isreg() or member.size > LARGEST_FILE:
                raise ValueError(f"{member.name} in {archive} is no file of at most {LARGEST_FILE} bytes")
            file = logs.extractfile(member)
            assert file is not None
            folders.setdefault(match[1], {})[match[2]] = file.read()
    return folders


def digest(folder: str, files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of a folder's content, whatever archive it came in.

    It is that of what ``find FOLDER -type f | LC_ALL=C sort | xargs sha256sum`` prints where FOLDER stands;
    an empty folder name stands for paths as they are.
    """
    start = f"{folder.rpartition('/')[2]}/" if folder else ""
    lines = (f"{hashlib.sha256(files[path]).hexdigest()}  {start}{path}\n" for path in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def verify(source: Source, content: bytes | Files) -> None:
    """Raise ``ValueError`` where a benchmark's files are not those that are pinned."""
    if isinstance(content, bytes):
        sha256 = hashlib.sha256(content).hexdigest()
    else:
        sha256 = digest(source.pinned.path if source.pinned.is_folder else "", content)
    if sha256 != source.pinned.sha256:
        raise ValueError(f"{source.pinned.path}: its SHA-256 is {sha256}, not {source.pinned.sha256}")


def packed(document: Mapping[str, Any]) -> bytes:
    """Return a benchmark as it is shipped; the same document is always the same bytes."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def main(folder: Path) -> None:
    """Write every benchmark whose files are there, and print its size."""
    for name, content in contents(folder).items():
        verify(SOURCES[name], content)
        file = SHIPPED / f"{name}.json.gz"
        file.write_bytes(packed(convert(SOURCES[name], content)))
        print(f"{file.name}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
