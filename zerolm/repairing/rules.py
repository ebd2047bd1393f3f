"""The repairs of output matrices by name."""

from __future__ import annotations

from typing import Final, Literal, get_args

Repair = Literal["none", "least-squares"]
"""No repair, or ridge regression on tokens."""
REPAIRS: Final[tuple[str, ...]] = get_args(Repair)
