"""Stored numbers as numbers that can be computed with."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

LARGEST_F16: Final = 65_504
BEYOND_F16: Final = 65_520
"""Numbers from here on are rounded to infinity."""
RAW_TYPES: Final = {"BF16": np.uint16, "F16": np.uint16, "F32": np.float32}


def widened(raw: NDArray[Any], dtype: str) -> NDArray[np.float32]:
    """Raw BF16, F16 or F32 as a new float32 array, exactly."""
    if dtype == "BF16":
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.view(np.float16 if dtype == "F16" else np.float32).astype(np.float32)


def narrowed(values: NDArray[np.floating[Any]], dtype: str) -> NDArray[Any]:
    """Numbers as they are stored: raw BF16, F16 (uint16) or F32, rounded to the nearest, ties to even.

    ``ValueError`` for finite numbers that F16 does not reach.
    """
    exact = np.ascontiguousarray(values, np.float32)
    if dtype == "F32":
        return exact
    if dtype == "F16":
        largest = max(exact.max(initial=0.0), -exact.min(initial=0.0))
        if BEYOND_F16 <= largest < np.inf:
            raise ValueError(f"a weight of {largest:.5g} is beyond float16, which ends at {LARGEST_F16:,}")
        with np.errstate(over="ignore"):  # of others beside an infinite one
            return exact.astype(np.float16).view(np.uint16)
    bits = exact.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(exact), 0x7FC0, rounded).astype(np.uint16)
