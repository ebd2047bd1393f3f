"""A full disk, in one line: where, how much is needed, and how much is free."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Final

FULL: Final = (errno.ENOSPC, errno.EDQUOT)
WORDS: Final = ("No space left", "os error 28", "Disk quota exceeded")
"""What safetensors says instead of an error's number."""
NUMPY_WORDS: Final = " requested and "
UNITS: Final = ("bytes", "kB", "MB", "GB")


class DiskFull(OSError, ValueError):
    """There is no room for what is to be written at ``place``.

    ``needed`` are bytes in all, or those that are needed at ``least``; 0 where nothing is known.
    """

    def __init__(self, place: Path, needed: int = 0, *, least: bool = False) -> None:
        self.place, self.needed, self.least = place, needed, least
        super().__init__(f"{str(place)!r} cannot be written: {reason(place, needed, least=least)}")

    def at(self, place: Path) -> DiskFull:
        """Return the same error of another place."""
        return DiskFull(place, self.needed, least=self.least)


def reason(place: Path, needed: int = 0, *, least: bool = False) -> str:
    """Return that the disk of a place is full, with what is needed and what is free."""
    need = f"{'more than ' * least}{_size(needed)} are needed, " if needed else ""
    return f"the disk is full: {need}{_size(free(place))} are free"


def is_full(error: BaseException) -> bool:
    """Return whether an error comes of a full disk, whoever raises it."""
    if isinstance(error, DiskFull):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in FULL
    words = str(error)
    is_cut_off = isinstance(error, OSError) and NUMPY_WORDS in words
    return is_cut_off or (isinstance(error, Exception) and any(word in words for word in WORDS))


def free(place: Path) -> int:
    """Return the bytes that are free where a file or folder is or would be."""
    there = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
    return shutil.disk_usage(there).free


def check_room(place: Path, needed: int) -> None:
    """Raise ``DiskFull`` where the ``needed`` bytes do not fit."""
    if needed > free(place):
        raise DiskFull(place, needed)


def _size(count: int) -> str:
    size, units = float(count), iter(UNITS)
    unit = next(units)
    while size >= 1000 and unit != UNITS[-1]:
        size, unit = size / 1000, next(units)
    return f"{size:.3g} {unit}"
