"""The numbers of rows that a GGUF file holds in one of its types."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.checkpoints.dtypes import widened
from zerolm.checkpoints.weight_types import BLOCKS, BY_NUMBER, STORED, WeightType

STORED_NAMES: Final = {each.name for each in STORED}


def readable(number: int) -> WeightType | None:
    """Return the type of this number, if rows of it are dequantised; None for others."""
    if number in BY_NUMBER:
        return None if BY_NUMBER[number].name == "F64" else BY_NUMBER[number]
    if number not in BLOCKS:
        return None
    try:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize
    except ModuleNotFoundError:
        raise ModuleNotFoundError("a gguf file needs the package gguf: pip install 'zerolm[gguf]'") from None

    weights, size = BLOCKS[number]
    kind = GGMLQuantizationType(number)
    try:
        dequantize(np.zeros((1, size), np.uint8), kind)
    except NotImplementedError:
        return None
    return WeightType(kind.name, number, weights, size, -1)


def dequantised(raw: NDArray[Any], kind: WeightType) -> NDArray[np.float32]:
    """Return the numbers (n, k) of rows (n, bytes of a row) uint8 that are stored so."""
    if kind.name in STORED_NAMES:
        return widened(raw.view(np.float32 if kind.bytes == 4 else np.uint16), kind.name)
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    return np.asarray(dequantize(raw, GGMLQuantizationType(kind.number)), np.float32)
