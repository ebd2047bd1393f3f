"""A written file with types, read back: tensor by tensor beside the child, and as a network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import GGUFReader
from numpy.typing import NDArray

from zerolm.carving.bits.felt import Place
from zerolm.carving.bits.kernels import sum_of_squares
from zerolm.carving.bits.typed_child import TypedChild
from zerolm.carving.export.gguf.file_tensors import names_in
from zerolm.checkpoints.gguf.dequantise import dequantised
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.gguf.names import in_class_order
from zerolm.checkpoints.weight_types import BY_NAME, BY_NUMBER

LARGEST_ERROR: Final = 0.5
"""Share of the squares of a matrix that rounding to the coarsest type may lose; another matrix loses 2."""


@dataclass(frozen=True, eq=False)
class WrittenChild(TypedChild):
    """A typed child whose matrices are those of a ``file``, under the names of llama.cpp."""

    file: Path

    @cached_property
    def _tensors(self) -> dict[str, Any]:
        read_gguf_header(self.file)  # checked before any library is given the file
        return {str(tensor.name): tensor for tensor in GGUFReader(self.file).tensors}

    def encoded(self, place: Place) -> NDArray[Any]:
        _, role = place
        child = self.weighed.child
        tensor = self._tensors[self.names[place]]
        rows = self.weighed.tensors[place].shape[0]
        raw = np.asarray(tensor.data).view(np.uint8).reshape(rows, -1)
        return in_class_order(child.parent.family, role, raw, child.cut.parent.head_size)

    @cached_property
    def names(self) -> dict[Place, str]:
        """The names of llama.cpp for each matrix."""
        return names_in(self.weighed.child)

    def stored(self) -> dict[Place, str]:
        """Return the types that the file has."""
        tensors = self.weighed.tensors
        return {place: BY_NUMBER[int(self._tensors[self.names[place]].tensor_type)].name for place in tensors}

    def check(self) -> None:
        """Raise ``ValueError`` where a matrix has another type than it was to have, or other numbers."""
        for place, kind in self.types.items():
            name = self.names[place]
            tensor = self._tensors.get(name)
            if tensor is None or int(tensor.tensor_type) != BY_NAME[kind].number:
                stored = "absent" if tensor is None else BY_NUMBER[int(tensor.tensor_type)].name
                raise ValueError(f"{name!r} of {str(self.file)!r} is {stored}, not {kind} as planned")
            values = self.weighed.values(place)
            read = dequantised(self.encoded(place), BY_NAME[kind])
            if not sum_of_squares(values, read) <= LARGEST_ERROR * sum_of_squares(values):
                raise ValueError(f"{name!r} of {str(self.file)!r} has other numbers than the child")
