"""The numbers of matrices that are stored quantised."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.checkpoints.dtypes import RAW_TYPES, widened
from zerolm.checkpoints.headers import TensorInfo
from zerolm.checkpoints.matrix_sums import Totals
from zerolm.checkpoints.packed import FP8, INT4, MXFP4, PackedTensor

EXPONENT_BIAS: Final = 127
"""An exponent s of eight bits (E8M0) stands for 2 to the power of s - 127."""
E2M1: Final = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float32)
"""The numbers of four bits of MXFP4, with the sign in the highest
(https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf)."""
SUMMED: Final = 1 << 20
"""Numbers that are summed in float64 at a time."""
FOUR_BITS: Final = np.concatenate([E2M1, -E2M1])


def _e4m3() -> NDArray[np.float32]:
    """Return the 256 numbers of FP8 (E4M3) by code; the two with all bits set but the sign are none.

    Source: https://arxiv.org/abs/2209.05433.
    """
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    size = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    size[(codes & 127) == 127] = np.nan
    return (np.where(codes < 128, size, -size)).astype(np.float32)


EIGHT_BITS: Final = _e4m3()


def dequantised(tensor: PackedTensor) -> NDArray[np.float32]:
    """Return the numbers of a packed tensor in its shape, all in memory."""
    codes = _bytes_of(tensor.packs[0])
    if tensor.dtype == MXFP4:
        exponents = _bytes_of(tensor.packs[1]).astype(np.int32) - EXPONENT_BIAS
        values = np.ldexp(FOUR_BITS[_nibbles(codes)], exponents[..., None])  # (..., rows, groups, 32)
        return np.ascontiguousarray(np.swapaxes(values.reshape(*values.shape[:-2], -1), -1, -2))
    if tensor.dtype == FP8:
        values = EIGHT_BITS[codes]
    elif tensor.dtype == INT4:
        values = _nibbles(codes).astype(np.float32) - np.float32(8)
    else:
        values = codes.astype(np.float32) - np.float32(128)
    rows, columns = tensor.shape[-2:]
    scales, (high, wide) = _scales(tensor.packs[1]), tensor.block
    scales = np.repeat(scales, high or rows, -2)[..., :rows, :]
    return np.asarray(values * np.repeat(scales, wide or columns, -1)[..., :columns])


def totals_of(tensor: PackedTensor) -> Totals:
    """Return the sums of a packed matrix; ``ValueError`` where a number is infinite or none."""
    values, squares, absolute = dequantised(tensor).reshape(-1), 0.0, 0.0
    for start in range(0, values.size, SUMMED):
        part = values[start : start + SUMMED].astype(np.float64)
        squares += float(part @ part)
        absolute += float(np.abs(part).sum())
    if not np.isfinite(squares):
        raise ValueError(f"tensor {tensor.name!r} in {str(tensor.file)!r} has weights that are not finite")
    return Totals(values.size, squares, absolute, float(values.max()), float(values.min()))


def _bytes_of(part: TensorInfo) -> NDArray[np.uint8]:
    """Return the bytes of a part, (..., bytes of its last axis), mapped."""
    shape = (*part.shape[:-1], part.shape[-1] * part.item_bytes)
    return np.memmap(part.file, np.uint8, "r", part.start, shape)


def _nibbles(codes: NDArray[np.uint8]) -> NDArray[np.int8]:
    """Return two numbers of four bits for each byte, the lower first, along the last axis."""
    both = np.stack([codes & 15, codes >> 4], -1).astype(np.int8)
    return both.reshape(*codes.shape[:-1], -1)


def _scales(part: TensorInfo) -> NDArray[np.float32]:
    if part.dtype in RAW_TYPES:
        raw: Any = np.memmap(part.file, RAW_TYPES[part.dtype], "r", part.start, part.shape)
        return widened(raw, part.dtype)
    return np.ldexp(np.float32(1), _bytes_of(part).astype(np.int32) - EXPONENT_BIAS)
