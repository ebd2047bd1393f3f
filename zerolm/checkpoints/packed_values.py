"""Matrices that are stored quantised, and their numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from zerolm.checkpoints.dtypes import RAW_TYPES
from zerolm.checkpoints.headers import TensorInfo

FP8, MXFP4, INT4, INT8 = "FP8", "MXFP4", "INT4", "INT8"
BITS: Final = {FP8: 8, MXFP4: 4, INT4: 4, INT8: 8}
"""Bits of a number, without its share of a scale."""
EXPONENT_BIAS: Final = 127
"""An exponent s of eight bits (E8M0) stands for 2 to the power of s - 127."""
E2M1: Final = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float32)
"""The numbers of four bits of MXFP4, with the sign in the highest
(https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf)."""
SUMMED: Final = 1 << 20
"""Bytes that are summed at a time."""
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
NUMBERS: Final = {FP8: EIGHT_BITS, MXFP4: FOUR_BITS, INT4: np.arange(-8, 8, dtype=np.float32),
                  INT8: np.arange(-128, 128, dtype=np.float32)}  # fmt: skip
"""The numbers of each type by code; a byte holds one of 256, or two of 16, the first in its lower half."""


@dataclass(frozen=True, slots=True)
class PackedTensor(TensorInfo):
    """A matrix, or one for each expert, as the stock class has it; ``packs`` are the tensors that hold it.

    Codes come first, then scales. A scale is for a ``block`` of rows and columns as they are stored; 0 means
    all there are. ``dtype`` is a key of ``BITS``; the place is that of the codes.
    """

    packs: tuple[TensorInfo, ...]
    block: tuple[int, int]

    @property
    def stored(self) -> tuple[TensorInfo, ...]:
        return self.packs

    @property
    def is_packed(self) -> bool:
        return True

    @property
    def bits(self) -> int:
        return BITS[self.dtype]

    def bytes_of(self, count: int) -> int:
        whole = sum(math.prod(part.shape) * part.item_bytes for part in self.packs)
        return whole * count // self.count

    def one(self, index: int) -> Self:
        packs = tuple(part.one(index) for part in self.packs)
        first = packs[0]
        return replace(self, shape=self.shape[1:], start=first.start, end=first.end, packs=packs)

    def numbers(self) -> NDArray[np.float32]:
        codes, numbers = _bytes_of(self.packs[0]), NUMBERS[self.dtype]
        if self.bits == 4:
            codes = np.stack([codes & 15, codes >> 4], -1)
        stored = self.shape if self.dtype != MXFP4 else (*self.shape[:-2], *self.shape[:-3:-1])
        rows, columns = stored[-2:]
        scales, (high, wide) = _scales(self.packs[1]), self.block
        scales = np.repeat(scales, high or rows, -2)[..., :rows, :]
        scales = np.repeat(scales, wide or columns, -1)[..., :columns]
        values = numbers[codes].reshape(stored) * scales
        return np.ascontiguousarray(values if self.dtype != MXFP4 else np.swapaxes(values, -1, -2))


def sums_of_packed(tensor: PackedTensor) -> tuple[float, float]:
    """Return the sums of absolute values and of squares of a packed matrix.

    Bytes are looked up and summed block by block: no number is dequantised, and some are in memory at a time.
    ``ValueError`` where one is infinite or none.
    """
    codes, scales = _bytes_of(tensor.packs[0]), _scales(tensor.packs[1]).astype(np.float64)
    codes = codes.reshape(len(codes), -1)  # (rows, bytes)
    high = tensor.block[0] or len(codes)
    wide = tensor.block[1] * tensor.bits // 8 or codes.shape[1]
    tables = [np.abs(NUMBERS[tensor.dtype]), NUMBERS[tensor.dtype] ** 2]
    if tensor.bits == 4:  # of a byte, the sum of both numbers
        tables = [(table[:, None] + table).reshape(-1) for table in tables]
    absolute, squares = np.zeros_like(scales), np.zeros_like(scales)
    step = high * max(1, SUMMED // (high * codes.shape[1]))
    for first in range(0, len(codes), step):
        part = np.asarray(codes[first : first + step])
        here = slice(first // high, -(-(first + len(part)) // high))
        for sums, table in zip((absolute, squares), tables, strict=True):
            along = np.add.reduceat(table[part], range(0, part.shape[1], wide), 1, np.float64)
            sums[here] = np.add.reduceat(along, range(0, len(part), high), 0)
    totals = float((absolute * np.abs(scales)).sum()), float((squares * scales**2).sum())
    if not np.isfinite(totals).all():
        raise ValueError(f"tensor {tensor.name!r} in {str(tensor.file)!r} has weights that are not finite")
    return totals


def _bytes_of(part: TensorInfo) -> NDArray[np.uint8]:
    """Return the bytes of a part, (..., bytes of its last axis), mapped."""
    shape = (*part.shape[:-1], part.shape[-1] * part.item_bytes)
    return np.memmap(part.file, np.uint8, "r", part.start, shape)


def _scales(part: TensorInfo) -> NDArray[np.float32]:
    """Return scales; those of one byte are exponents."""
    if part.dtype in RAW_TYPES:
        return part.numbers()
    return np.ldexp(np.float32(1), _bytes_of(part).astype(np.int32) - EXPONENT_BIAS)
