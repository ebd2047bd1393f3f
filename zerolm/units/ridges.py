"""The two ridges of a refitted matrix."""

from __future__ import annotations

from typing import Final, NamedTuple


class Ridges(NamedTuple):
    """Shares of the mean diagonal: for what a matrix sends in the parent, and for what others have lost."""

    output: float
    lost: float


UNTRIED: Final = Ridges(1e-1, 1.0)
"""The ridges where nothing is held out to choose them on."""
