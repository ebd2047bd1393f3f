"""A written file with types, read back: tensor by tensor against the child, and as a network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import GGUFReader
from numpy.typing import NDArray

from zerolm.carving.bits.file_child import TypedFile
from zerolm.carving.bits.kernels import Values, sum_of_squares
from zerolm.carving.bits.typed_child import TypedChild
from zerolm.checkpoints.gguf.dequantise import dequantised
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.gguf.names import in_class_order
from zerolm.checkpoints.weight_types import BY_NAME, BY_NUMBER
from zerolm.children.gguf.file_tensors import FileMatrix, names_in
from zerolm.passes.matrix_moments import Place

LARGEST_ERROR: Final = 0.5
"""Largest relative squared error of a matrix from rounding to the coarsest type; a different matrix has 2."""


@dataclass(frozen=True, eq=False)
class WrittenChild(TypedChild):
    """A typed child with the matrices of a ``file``, under the names of llama.cpp."""

    file: Path

    @cached_property
    def _tensors(self) -> dict[str, Any]:
        return tensors_in(self.file)

    def encoded(self, place: Place) -> NDArray[Any]:
        _, role = place
        child = self.weighed.child
        tensor = self._tensors[self.names[place]]
        rows = self.weighed.tensors[place].shape[0]
        raw = np.asarray(tensor.data).view(np.uint8).reshape(rows, -1)
        return in_class_order(child.parent.family, role, raw, child.cut.parent.head_size)

    @cached_property
    def names(self) -> dict[Place, str]:
        """llama.cpp's name of each matrix."""
        return names_in(self.weighed.child)

    def stored(self) -> dict[Place, str]:
        """Return the types in the file."""
        tensors = self.weighed.tensors
        return {place: BY_NUMBER[int(self._tensors[self.names[place]].tensor_type)].name for place in tensors}

    def check(self) -> None:
        """Raise ``ValueError`` where a matrix has another type than planned, or other numbers."""
        for place, kind in self.types.items():
            name = self.names[place]
            _check_type(self.file, self._tensors.get(name), name, kind)
            values = self.weighed.values(place)
            read = dequantised(self.encoded(place), BY_NAME[kind])
            _check_numbers(self.file, name, values, read)


@dataclass(frozen=True, eq=False)
class WrittenFile(TypedFile):
    """An uncut child with the matrices of its own ``file``."""

    file: Path

    @cached_property
    def _tensors(self) -> dict[str, Any]:
        return tensors_in(self.file)

    def encoded(self, matrix: FileMatrix, expert: int | None = None) -> Iterator[NDArray[Any]]:
        raw = np.asarray(self._tensors[matrix.name].data).view(np.uint8)
        by_expert = raw.reshape(matrix.count, matrix.rows, -1)
        yield from by_expert if expert is None else by_expert[expert : expert + 1]

    def check(self) -> None:
        """Raise ``ValueError`` where a matrix has another type than planned, or other numbers."""
        for place, kind in self.types.items():
            for matrix in self.weighed.matrices[place]:
                _check_type(self.file, self._tensors.get(matrix.name), matrix.name, kind)
                for values, read in zip(matrix.values(), self.rounded(matrix), strict=True):
                    _check_numbers(self.file, matrix.name, values, read)


def written_of(typed: TypedChild | TypedFile, file: Path) -> WrittenChild | WrittenFile:
    """Return a child with types as written."""
    if isinstance(typed, TypedFile):
        return WrittenFile(typed.weighed, typed.types, file)
    return WrittenChild(typed.weighed, typed.types, file)


def tensors_in(file: Path) -> dict[str, Any]:
    """Return the tensors of a file by their names."""
    read_gguf_header(file)  # checked before any library opens the file
    return {str(tensor.name): tensor for tensor in GGUFReader(file).tensors}


def _check_type(file: Path, tensor: Any, name: str, kind: str) -> None:
    if tensor is None or int(tensor.tensor_type) != BY_NAME[kind].number:
        stored = "absent" if tensor is None else BY_NUMBER[int(tensor.tensor_type)].name
        raise ValueError(f"{name!r} of {str(file)!r} is {stored}, not {kind} as planned")


def _check_numbers(file: Path, name: str, values: Values, read: Values) -> None:
    if not sum_of_squares(values, read) <= LARGEST_ERROR * sum_of_squares(values):
        raise ValueError(f"{name!r} of {str(file)!r} has other numbers than the child")
