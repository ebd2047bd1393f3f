"""How many examples a property gets: its share of those of the profile."""

from typing import Final

from hypothesis import settings

USUAL: Final = 60
"""Examples of a property that names no number, where the numbers in the tests are taken as they stand."""
FEWEST: Final = 3


def portion(count: int) -> int:
    """Return ``count`` scaled to the profile: a quarter of it by default, ten times as many nightly."""
    return max(FEWEST, count * settings().max_examples // USUAL)
