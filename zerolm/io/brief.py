"""Long texts in one line: the ``repr`` of an object that holds much, and errors of libraries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from zerolm.settings import shown

LONGEST_REPR: Final = 300
"""Characters of what ``repr`` shows."""


def brief(value: object, *parts: str) -> str:
    """Return ``Kind(part; part)`` on one line, clipped to 300 characters."""
    text = " ".join("; ".join(parts).split())
    name = type(value).__name__
    room = LONGEST_REPR - len(name) - 2
    return f"{name}({text if len(text) <= room else text[: room - 1] + '…'})"


class Brief:
    """Objects that show their fields on one short line, each clipped."""

    def __repr__(self) -> str:
        return brief(self, *(f"{name} {shown(value)}" for name, value in vars(self).items()))


@contextmanager
def one_line(what: str) -> Iterator[None]:
    """Turn any error that a library raises inside the block into a ``ValueError`` of one line."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # libraries raise what they will, and panics are not even Exceptions
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ValueError(f"{what} cannot be read: {reason}") from None
