"""One line for an optional package that is missing, with the extra that brings it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needing_torch(what: str = "proxies run networks", extra: str = "torch") -> Iterator[None]:
    """Within, what an import lacks is said by the extra that brings it."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name is None:  # said already
            raise
        message = f"{what}, which needs {missing.name}: pip install 'zerolm[{extra}]'"
        raise ModuleNotFoundError(message) from missing
