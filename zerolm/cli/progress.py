"""Progress on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


def patient(seconds: float = 3.0) -> Callable[[str], None]:
    """Return progress for those who wait: nothing is shown within the first seconds."""
    start = time.monotonic()

    def show(text: str) -> None:
        if time.monotonic() - start > seconds:
            print(f"zerolm: {text} ...", file=sys.stderr, flush=True)

    return show
