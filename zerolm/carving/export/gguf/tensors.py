"""The tensors of a GGUF file: the parent's, cut, under the names and in the order of llama.cpp.

Readers of GGUF rotate neighbouring elements of queries and keys where transformers rotates the two halves of
a head, so these rows change places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Ints
from zerolm.carving.kept_units import Cut, LayerCut
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.dtypes import narrowed, widened
from zerolm.checkpoints.headers import ITEM_BYTES

ROTATED: Final = ("q", "k", "q_bias", "k_bias")
Arrays = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Entry:
    """A tensor of the file; ``values`` reads its numbers as the file holds them (16 bits as raw integers)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: Callable[[], NDArray[Any]]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def entries(checkpoint: Checkpoint, cut: Cut, repaired: Arrays) -> Iterator[Entry]:
    """The tensors of a child; a tied head is left out, for readers then take the embedding.

    ``repaired`` holds new values by the parent's name of a tensor, in the shape that the cut leaves. Matrices
    keep their types, norms and biases become float32.
    """
    layout, tensors = checkpoint.layout, checkpoint.family.tensors
    names = {pattern.role: pattern.gguf for pattern in (*tensors.body, *tensors.head) if pattern.gguf}
    for role, source in layout.layer(None).items():
        if role in names and not (role == "head" and layout.tied):
            yield _entry(checkpoint, cut, names[role], source, None, repaired)
    for place, layer in enumerate(cut.layers):
        for role, source in layout.layer(layer.layer).items():
            yield _entry(checkpoint, cut, names[role].replace("{layer}", str(place)), source, layer, repaired)


def _entry(
    checkpoint: Checkpoint, cut: Cut, name: str, source: str, layer: LayerCut | None, repaired: Arrays
) -> Entry:
    info, slot = checkpoint.tensors[source], checkpoint.layout.slots[source]
    kept = [None if layer is None else cut.kept(layer, axis) for axis in slot.axes]
    shape = tuple(size if index is None else len(index) for size, index in zip(info.shape, kept, strict=True))
    if source in repaired and repaired[source].shape != shape:
        raise ValueError(f"the repair of {source!r} has shape {repaired[source].shape}, but {shape} is left")
    dtype = info.dtype if len(shape) == 2 else "F32"

    def values() -> NDArray[Any]:
        if source in repaired:
            raw = narrowed(repaired[source], info.dtype)
        else:
            raw = _sliced(checkpoint, source, kept)
        if slot.role in ROTATED:
            raw = raw[neighbouring(len(raw), cut.parent.head_size)]
        return np.ascontiguousarray(raw if dtype == info.dtype else widened(raw, info.dtype))

    return Entry(name, dtype, shape, values)


def _sliced(checkpoint: Checkpoint, source: str, kept: list[Ints | None]) -> NDArray[Any]:
    """The kept part of a stored tensor, raw; mapped where all is kept."""
    raw: NDArray[Any] = checkpoint.raw(source)
    for axis, index in enumerate(kept):
        if index is not None and len(index) < raw.shape[axis]:
            raw = raw.take(index, axis=axis)
    return raw


def neighbouring(rows: int, head_size: int) -> Ints:
    """The order of rows of heads of size e in which what is rotated together is: 0, e/2, 1, e/2 + 1, ..."""
    return np.arange(rows).reshape(-1, 2, head_size // 2).swapaxes(1, 2).ravel()
