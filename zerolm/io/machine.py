"""The name of the processor."""

from __future__ import annotations

import platform
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
