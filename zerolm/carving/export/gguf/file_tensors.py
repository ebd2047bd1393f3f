"""The tensors of a GGUF file: the parent's, cut, under the names and in the order of llama.cpp.

Readers of GGUF rotate neighbouring elements of queries and keys where transformers rotates the two halves of
a head, so these rows change places.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Ints
from zerolm.carving.export.child_tensors import Child, ChildTensor
from zerolm.checkpoints.dtypes import widened
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


def entries(child: Child) -> Iterator[GgufTensor]:
    """Yield the tensors of a child, those outside the layers first; a tied head is left out.

    Readers then take the embedding. Matrices keep their types, norms and biases become float32.
    """
    layout, tensors = child.parent.layout, child.parent.family.tensors
    names = {pattern.role: pattern.gguf for pattern in (*tensors.body, *tensors.head) if pattern.gguf}
    places = {kept.layer: place for place, kept in enumerate(child.cut.layers)}
    order = {name: place for place, name in enumerate(layout.slots)}

    def rank(tensor: ChildTensor) -> tuple[int, bool, int]:
        return _place(tensor, places), tensor.is_made_anew, order[tensor.source]

    for tensor in sorted(child.tensors(), key=rank):
        is_tied_head = layout.tied and tensor.role == "head" and not tensor.is_made_anew
        if is_tied_head or (tensor.kept is None and tensor.role not in names):
            continue
        dtype = tensor.info.dtype if len(tensor.shape) == 2 else "F32"
        name = names[tensor.role].replace("{layer}", str(_place(tensor, places)))
        yield GgufTensor(name, dtype, tensor.shape, partial(_values, tensor, dtype))


def _place(tensor: ChildTensor, places: Mapping[int, int]) -> int:
    """Return the number of a tensor's layer in the child, -1 outside the layers."""
    return -1 if tensor.kept is None else places[tensor.kept.layer]


def _values(tensor: ChildTensor, dtype: str) -> NDArray[Any]:
    """Return the numbers of a tensor as a file with this ``dtype`` holds them."""
    raw, stored = tensor.array(), tensor.info.dtype
    if tensor.role in ROTATED:
        raw = raw[neighbouring(len(raw), tensor.child.cut.parent.head_size)]
    return raw if dtype == stored else widened(raw, stored)


def neighbouring(rows: int, head_size: int) -> Ints:
    """Return the order of rows of heads of size e with rotated pairs together: 0, e/2, 1, e/2 + 1, ..."""
    return np.arange(rows).reshape(-1, 2, head_size // 2).swapaxes(1, 2).ravel()
