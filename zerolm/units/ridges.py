"""The two ridges of a refitted matrix."""

from __future__ import annotations

from typing import Final, NamedTuple


class Ridges(NamedTuple):
    """Shares of the mean diagonal: for a matrix's own output in the parent, and for earlier errors."""

    output: float
    lost: float


UNTRIED: Final = Ridges(1e-1, 1.0)
"""The ridges without held-out tokens to choose them on."""
