"""The name of the processor, and the most memory that this process has had."""

from __future__ import annotations

import platform
import sys
from contextlib import suppress
from pathlib import Path


def processor() -> str:
    """Return the name of the processor, as the system has it."""
    with suppress(OSError, UnicodeDecodeError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return " ".join(value.split())
    return platform.processor() or platform.machine() or "not named"


def peak_memory() -> int | None:
    """Return the most bytes that this process has had in memory so far, pages of mapped files among them.

    None where the system does not say.
    """
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
