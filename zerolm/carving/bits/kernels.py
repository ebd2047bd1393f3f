"""llama.cpp's own quantisation of rows of weights, and back: the numbers that its readers use."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.checkpoints.dtypes import narrowed
from zerolm.checkpoints.gguf.dequantise import STORED_NAMES, dequantised
from zerolm.checkpoints.weight_types import WeightType

Values = NDArray[np.float32]
PIECE: Final = 1 << 18
"""Approximate number of weights that a thread quantises at a time."""


def quantised(values: Values, kind: WeightType, importances: Values | None, threads: int = 1) -> NDArray[Any]:
    """Return rows (n, k) encoded in this type, (n, bytes of a row) uint8.

    ``importances`` (k,) weight the squared errors by column. Raises ``ValueError`` where a row is not a
    multiple of the block size, or where the type needs importances and there are none.
    """
    values = np.ascontiguousarray(values, np.float32)
    rows, columns = values.shape
    if kind.name in STORED_NAMES:
        return narrowed(values, kind.name).view(np.uint8).reshape(rows, -1)
    if not kind.holds(columns):
        raise ValueError(f"rows of {columns} do not fall into blocks of {kind.weights}, as {kind.name} has")
    if kind.needs_importances and importances is None:
        raise ValueError(f"type {kind.name} needs importances")
    weights = None if importances is None else np.ascontiguousarray(importances, np.float32)
    if weights is not None and weights.shape != (columns,):
        raise ValueError(f"importances of {weights.shape} do not fit rows of {columns}")
    out = np.empty((rows, kind.size(columns)), np.uint8)
    step = max(1, PIECE // columns)

    def piece(start: int) -> None:
        part = values[start : start + step]
        target = out[start : start + step]
        pointer = None if weights is None else weights.ctypes.data
        chunk()(kind.number, part.ctypes.data, target.ctypes.data, 0, len(part), columns, pointer)

    if threads == 1 or rows <= step:
        for start in range(0, rows, step):
            piece(start)
        return out
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(piece, range(0, rows, step)))
    return out


def rounded(values: Values, kind: WeightType, importances: Values | None, threads: int = 1) -> Values:
    """Return rows (n, k) as read back from a file of this type."""
    return dequantised(quantised(values, kind, importances, threads), kind)


def sum_of_squares(values: Values, other: Values | None = None) -> float:
    """Return the sum of squares of a matrix (n, k), or of its difference from another, in row blocks."""
    step = max(1, PIECE // values.shape[1])
    total = 0.0
    for start in range(0, len(values), step):
        part = values[start : start + step].astype(np.float64)
        if other is not None:
            part -= other[start : start + step]
        total += float(np.vdot(part, part))
    return total


@cache
def chunk() -> Callable[..., int]:
    """Return llama.cpp's function that quantises some rows; ``ModuleNotFoundError`` where it is missing."""
    try:
        from llama_cpp import llama_cpp
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "quantisation types need llama-cpp-python: pip install 'zerolm[gguf]'"
        ) from None
    try:
        library: Any = llama_cpp._lib
        function: Any = library.ggml_quantize_chunk
    except AttributeError:  # where a library does not export the functions that it is linked with
        function = ctypes.CDLL(
            str(Path(llama_cpp.__file__).parent / "lib" / "ggml-base.dll")
        ).ggml_quantize_chunk
    function.restype = ctypes.c_size_t
    whole, pointer = ctypes.c_int64, ctypes.c_void_p
    function.argtypes = [ctypes.c_int, pointer, pointer, whole, whole, whole, pointer]
    return function  # type: ignore[no-any-return]
