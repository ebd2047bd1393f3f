"""Files of an archive as GitHub packs one, read as it arrives; nothing is ever extracted to the disk.

The archive is not trusted: what is read must be a regular file at an expected path, and sizes are bounded.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import tarfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from typing import IO, Final, Self, cast

from zerolm.groundtruth.download.fetch import Metered

MAX_UNPACKED: Final = 2 << 30
MAX_MEMBERS: Final = 200_000
MAX_FILE: Final = 1 << 18
MAX_FILES: Final = 1 << 24
"""Bytes of all files used together."""
USED: Final = re.compile(r"(?:ppl|params)_summary\.yaml|config_[0-9]{1,4}/j[0-9]{1,4}/model_config\.yaml")
"""The files of a folder that are read, each architecture's configuration and what became of all."""

Files = dict[str, bytes]


class _Header(tarfile.TarInfo):
    """A header whose extensions, which ``tarfile`` reads into memory, are short."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0 or (not header.isreg() and header.size > MAX_FILE):
            raise tarfile.TarError(f"a header of {header.size} bytes")
        return header


def read_folders(packed: Metered, folders: Collection[str]) -> dict[str, Files]:
    """Return the files used of each folder, by path within it, from a tar.gz with one folder at its top.

    ``ValueError`` where a folder is not there, or the archive is not what it should be.
    """
    contents: dict[str, Files] = {folder: {} for folder in folders}
    total = 0
    try:
        for folder, path, content in _used(packed, folders):
            if path in contents[folder]:
                raise ValueError(f"{packed.what} has {folder}/{path} twice")
            contents[folder][path] = content
            total += len(content)
            if total > MAX_FILES:
                raise ValueError(f"{packed.what} has more than {MAX_FILES} bytes below {', '.join(folders)}")
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{packed.what} is damaged: {error}") from None
    missing = [folder for folder, files in contents.items() if not files]
    if missing:
        raise ValueError(f"{packed.what} has no files below {' and '.join(missing)}")
    return contents


def _used(packed: Metered, folders: Collection[str]) -> Iterator[tuple[str, str, bytes]]:
    """Folder, path and content of each file used."""
    with gzip.GzipFile(fileobj=cast(IO[bytes], packed)) as unpacked:
        stream = cast(IO[bytes], Metered(unpacked, f"the unpacked archive {packed.what}", MAX_UNPACKED))
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as archive:
            for number, member in enumerate(archive):
                if number >= MAX_MEMBERS:
                    raise ValueError(f"{packed.what} has more than {MAX_MEMBERS} members")
                _, _, name = member.name.partition("/")
                folder = next((folder for folder in folders if name.startswith(f"{folder}/")), None)
                if folder is None or not USED.fullmatch(name[len(folder) + 1 :]):
                    continue
                if not member.isreg() or member.size > MAX_FILE:
                    raise ValueError(f"{name} in {packed.what} is no file of at most {MAX_FILE} bytes")
                file = archive.extractfile(member)
                assert file is not None
                yield folder, name[len(folder) + 1 :], file.read()


def digest(folder: str, files: Mapping[str, bytes]) -> str:
    """The SHA-256 of a folder's content, whatever archive it came in.

    It is that of what ``find FOLDER -type f | LC_ALL=C sort | xargs sha256sum`` prints where FOLDER stands;
    an empty folder name stands for paths as they are.
    """
    start = f"{folder.rpartition('/')[2]}/" if folder else ""
    lines = (f"{hashlib.sha256(files[path]).hexdigest()}  {start}{path}\n" for path in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
