"""How much memory there is."""

from __future__ import annotations

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
