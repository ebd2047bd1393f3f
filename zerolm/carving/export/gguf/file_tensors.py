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
from zerolm.carving.export.folder import (
    Matrices,
    check_repaired,
    child_shape,
    kept_indices,
    maps_for,
    products,
    taken,
)
from zerolm.carving.kept_units import Cut, LayerCut
from zerolm.carving.width.maps import StreamMaps
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.dtypes import narrowed, widened
from zerolm.checkpoints.headers import ITEM_BYTES

ROTATED: Final = ("q", "k", "q_bias", "k_bias")


@dataclass(frozen=True)
class GgufTensor:
    """A tensor of the file; ``values`` reads its numbers as the file holds them (16 bits as raw integers)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: Callable[[], NDArray[Any]]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def entries(
    checkpoint: Checkpoint,
    cut: Cut,
    repaired: Matrices,
    fitted: Mapping[tuple[int, str], NDArray[np.float32]],
) -> Iterator[GgufTensor]:
    """Yield the tensors of a child; a tied head is left out, for readers then take the embedding.

    ``repaired`` holds new values by the parent's name of a tensor, in the shape that the cut leaves;
    ``fitted`` maps of a narrower stream by layer and norm. Matrices keep their types, norms and biases become
    float32.
    """
    layout, tensors = checkpoint.layout, checkpoint.family.tensors
    source = Carving(checkpoint, cut, repaired, maps_for(checkpoint, cut, fitted))
    names = {pattern.role: pattern.gguf for pattern in (*tensors.body, *tensors.head) if pattern.gguf}
    for role, stored in layout.layer(None).items():
        if role in names and not (role == "head" and layout.tied):
            yield _entry(source, names[role], stored, role, None)
    embedding = layout.name("embedding")
    if embedding and layout.tied and cut.narrowing and not cut.narrowing.width.tied:
        yield _entry(source, names["head"], embedding, "head", None)
    for place, layer in enumerate(cut.layers):
        for role, stored in layout.layer(layer.layer).items():
            yield _entry(source, names[role].replace("{layer}", str(place)), stored, role, layer)


@dataclass(frozen=True)
class Carving:
    """A parent, what is kept of it, what is new, and the maps of a narrower stream, if any."""

    checkpoint: Checkpoint
    cut: Cut
    repaired: Matrices
    maps: StreamMaps | None


def _entry(source: Carving, name: str, stored: str, role: str, layer: LayerCut | None) -> GgufTensor:
    checkpoint, cut, repaired, maps = source.checkpoint, source.cut, source.repaired, source.maps
    info, slot = checkpoint.tensors[stored], checkpoint.layout.slots[stored]
    kept = {} if layer is None else kept_indices(cut, layer, slot.axes, info.shape)
    shape = child_shape(cut, slot.axes, info.shape, kept)
    check_repaired(repaired, stored, shape)
    dtype = info.dtype if len(shape) == 2 else "F32"

    def values() -> NDArray[Any]:
        if stored in repaired:
            raw = narrowed(repaired[stored], info.dtype)
        elif maps is None or "hidden" not in slot.axes:
            raw = taken(checkpoint, stored, kept)
        else:
            raw = np.concatenate(list(products(checkpoint, stored, role, slot.layer, kept, maps)))
        if role in ROTATED:
            raw = raw[neighbouring(len(raw), cut.parent.head_size)]
        return np.ascontiguousarray(raw if dtype == info.dtype else widened(raw, info.dtype))

    return GgufTensor(name, dtype, shape, values)


def neighbouring(rows: int, head_size: int) -> Ints:
    """Return the order of rows of heads of size e with rotated pairs together: 0, e/2, 1, e/2 + 1, ..."""
    return np.arange(rows).reshape(-1, 2, head_size // 2).swapaxes(1, 2).ravel()
