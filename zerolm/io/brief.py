"""The short ``repr`` of an object that holds much."""

from __future__ import annotations

from typing import Final

LONGEST_REPR: Final = 300
"""Characters of what ``repr`` shows."""


def brief(value: object, *parts: str) -> str:
    """Return ``Kind(part; part)`` on one line, clipped to 300 characters."""
    text = " ".join("; ".join(parts).split())
    name = type(value).__name__
    room = LONGEST_REPR - len(name) - 2
    return f"{name}({text if len(text) <= room else text[: room - 1] + '…'})"
