"""The compiled way to sum up a block; needs numba (the extra ``fast``).

Values are added in float32 over a tile small enough that no digit that matters is lost, then flushed to
float64. Extremes are found on integers: flipped so that their order is that of the numbers, they need no
conversion, and anything infinite or not a number is an extreme.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from zerolm.architecture import Floats
from zerolm.checkpoints.dtypes import widened
from zerolm.checkpoints.matrix_sums import Sums, plain

TILE_COLS: Final = 2048
TILE_ROWS: Final = 64
SAFE: Final = (1e-15, 1e15)
"""Blocks whose largest weight is beyond are summed in float64, for float32 cannot hold its square."""
SHIFTS: Final = {"BF16": (16, 1.0), "F16": (13, 2.0**112), "F32": (0, 1.0)}
"""How far the bits without the sign are shifted to be a float32, and what that is then multiplied by."""


def compiled(raw: NDArray[Any], dtype: str) -> tuple[Sums, Sums]:
    """A ``Summing``, equal to the plain one to some 1e-7."""
    kind: Any = np.int16 if raw.itemsize == 2 else np.int32
    most = kind(np.iinfo(kind).max)
    squares, absolute = ([np.zeros(size) for size in raw.shape] for _ in range(2))
    largest, smallest = ([np.full(size, end, kind) for size in raw.shape] for end in (~most, most))
    shift, scale = SHIFTS[dtype]
    add(raw, np.uint32(shift), np.float32(scale), *squares, *absolute)
    extremes(raw.view(kind), most, *largest, *smallest)
    rows, cols = (
        Sums(squares[axis], absolute[axis], _number(largest[axis], dtype), _number(smallest[axis], dtype))
        for axis in (0, 1)
    )
    peak = max(abs(rows.largest.max()), abs(rows.smallest.min()))
    if peak and not SAFE[0] <= peak <= SAFE[1]:
        return plain(raw, dtype)
    return rows, cols


def _number(keys: NDArray[Any], dtype: str) -> Floats:
    """Flipped integers as the numbers they stand for."""
    limits = np.iinfo(keys.dtype)
    bits = keys ^ ((keys >> (limits.bits - 1)) & keys.dtype.type(limits.max))
    with np.errstate(invalid="ignore"):
        return widened(bits.view(f"u{keys.itemsize}"), dtype).astype(np.float64)


def _magnitude(_: Any, bits: Any, shift: Any) -> Any:
    """The float32 whose bits are these without their sign, shifted; all in 32 bits, as numba would not."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = context.get_value_type(types.uint32)
        bare = builder.and_(arguments[0], arguments[0].type((1 << (signature.args[0].bitwidth - 1)) - 1))
        wide = bare if bare.type == number else builder.zext(bare, number)
        return builder.bitcast(builder.shl(wide, arguments[1]), context.get_value_type(types.float32))

    return types.float32(bits, types.uint32), generate


def _flipped(_: Any, bits: Any) -> Any:
    """Bits of a float as an integer in the order of the floats: all but the sign flipped if it is set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind, width = arguments[0].type, signature.args[0].bitwidth
        negative = builder.ashr(arguments[0], kind(width - 1))
        return builder.xor(arguments[0], builder.and_(negative, kind((1 << (width - 1)) - 1)))

    return bits(bits), generate


def _add_row(raw: Any, shift: Any, scale: Any, squares: Any, absolute: Any) -> Any:
    """Add a piece of a row to its columns' sums; return its own."""
    square_sum, value_sum = np.float32(0), np.float32(0)
    for col in range(raw.size):
        value = magnitude(raw[col], shift) * scale
        square = value * value
        square_sum += square
        value_sum += value
        squares[col] += square
        absolute[col] += value
    return square_sum, value_sum


def _add(raw: Any, shift: Any, scale: Any, rsq: Any, csq: Any, rab: Any, cab: Any) -> None:
    """Add a block to the squares and absolute sums of its rows (r..) and columns (c..)."""
    rows, cols = raw.shape
    squares, absolute = np.zeros(TILE_COLS, np.float32), np.zeros(TILE_COLS, np.float32)
    for left in range(0, cols, TILE_COLS):
        right = min(left + TILE_COLS, cols)
        for top in range(0, rows, TILE_ROWS):
            squares[:] = 0
            absolute[:] = 0
            for row in range(top, min(top + TILE_ROWS, rows)):
                piece = raw[row, left:right]
                square_sum, value_sum = add_row(piece, shift, scale, squares, absolute)
                rsq[row] += square_sum
                rab[row] += value_sum
            for col in range(right - left):
                csq[left + col] += squares[col]
                cab[left + col] += absolute[col]


def _extremes_of_row(signed: Any, most: Any, largest: Any, smallest: Any) -> Any:
    """Take a piece of a row into its columns' extremes; return its own."""
    kind = signed.dtype.type
    high, low = kind(~most), most
    for col in range(signed.size):
        key = flipped(signed[col])
        high, low = kind(max(high, key)), kind(min(low, key))
        largest[col], smallest[col] = max(largest[col], key), min(smallest[col], key)
    return high, low


def _extremes(signed: Any, most: Any, rhi: Any, chi: Any, rlo: Any, clo: Any) -> None:
    """The largest and smallest flipped integers of the rows (r..) and columns (c..) of a block."""
    rows, cols = signed.shape
    for left in range(0, cols, TILE_COLS):
        right = min(left + TILE_COLS, cols)
        for row in range(rows):
            high, low = extremes_of_row(signed[row, left:right], most, chi[left:right], clo[left:right])
            rhi[row], rlo[row] = max(rhi[row], high), min(rlo[row], low)


magnitude: Any = intrinsic(_magnitude)
flipped: Any = intrinsic(_flipped)
_reordered: Any = njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
_exact: Any = njit(nogil=True, cache=True)
add_row, extremes_of_row = _reordered(_add_row), _exact(_extremes_of_row)
add, extremes = _exact(_add), _exact(_extremes)

for _kind, _dtype in ((np.uint16, "BF16"), (np.uint32, "F32")):  # compiled at import, not while threads wait
    compiled(np.zeros((1, 1), _kind), _dtype)
