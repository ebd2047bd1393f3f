"""How much memory there is, and giving back what is not used."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path


def free_memory() -> int:
    """Return bytes of memory that could be used now; half of all where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def give_back() -> None:
    """Give the system the memory that the process holds and does not use, where its allocator can.

    That of glibc keeps what was freed between blocks in use: gigabytes, once many layers have come and gone.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
