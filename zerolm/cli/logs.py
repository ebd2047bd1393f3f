"""The lines of ``-v`` on stderr: what is read, reused and chosen, and how long each step takes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)


class OneLine(logging.Handler):
    """Prints every record as one line on what stderr is now: a bar may have taken its place."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = " ".join(record.getMessage().split())
            place = record.name.removeprefix("zerolm.")
            print(f"zerolm: {record.relativeCreated / 1000:.2f} s, {place}: {text}", file=sys.stderr)
        except Exception:
            self.handleError(record)


@contextmanager
def logged(verbosity: int) -> Iterator[None]:
    """Within, show what the package logs: nothing, what it does (1), or each thing that it looks at (2)."""
    logger, handler = logging.getLogger("zerolm"), OneLine()
    before = logger.level
    if verbosity:
        logger.addHandler(handler)
        logger.setLevel(LEVELS[min(verbosity, 2)])
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
