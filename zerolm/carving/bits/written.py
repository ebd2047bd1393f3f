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

from zerolm.carving.bits.kernels import Values, sum_of_squares
from zerolm.carving.bits.typed_child import TypedChild
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.weight_types import BY_NAME, BY_NUMBER
from zerolm.children.gguf.file_tensors import FileMatrix

LARGEST_ERROR: Final = 0.5
"""Largest relative squared error of a matrix from rounding to the coarsest type; a different matrix has 2."""


@dataclass(frozen=True, eq=False)
class WrittenChild(TypedChild):
    """A typed child with the matrices of its own ``file``."""

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
