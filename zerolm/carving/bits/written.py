"""Files with types: a written child, read back and compared, and the importances of its columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from numpy.typing import NDArray

from zerolm.carving.bits.kernels import sum_of_squares
from zerolm.carving.bits.typed_child import TypedChild
from zerolm.carving.bits.weighed_child import WeighedChild
from zerolm.checkpoints.gguf.header import read_gguf_header
from zerolm.checkpoints.weight_types import BY_NAME, BY_NUMBER
from zerolm.children.gguf.file_tensors import FileMatrix
from zerolm.passes.loss_moments import MOMENT_TOKENS

LARGEST_ERROR: Final = 0.5
"""Largest relative squared error of a matrix from rounding to the coarsest type; a different matrix has 2."""


@dataclass(frozen=True, eq=False)
class WrittenChild(TypedChild):
    """A typed child with the matrices of its own ``file``."""

    file: Path

    @cached_property
    def _tensors(self) -> dict[str, Any]:
        read_gguf_header(self.file)  # checked before any library opens the file
        return {str(tensor.name): tensor for tensor in GGUFReader(self.file).tensors}

    def encoded(self, matrix: FileMatrix, expert: int | None = None) -> Iterator[NDArray[Any]]:
        raw = np.asarray(self._tensors[matrix.name].data).view(np.uint8)
        by_expert = raw.reshape(matrix.count, matrix.rows, -1)
        yield from by_expert if expert is None else by_expert[expert : expert + 1]

    def check(self) -> None:
        """Raise ``ValueError`` where a matrix has another type than planned, or other numbers."""
        for place, kind in self.types.items():
            for matrix in self.weighed.matrices[place]:
                tensor, name = self._tensors.get(matrix.name), f"{matrix.name!r} of {str(self.file)!r}"
                if tensor is None or int(tensor.tensor_type) != BY_NAME[kind].number:
                    stored = "absent" if tensor is None else BY_NUMBER[int(tensor.tensor_type)].name
                    raise ValueError(f"{name} is {stored}, not {kind} as planned")
                for values, read in zip(matrix.values(), self.rounded(matrix), strict=True):
                    if not sum_of_squares(values, read) <= LARGEST_ERROR * sum_of_squares(values):
                        raise ValueError(f"{name} has other numbers than the child")


def write_imatrix(weighed: WeighedChild, file: Path, text: str) -> None:
    """Write the importances of every matrix of a child by llama.cpp's names; ``text`` names their source.

    The file holds the importances of columns, scaled to mean 1, as sums over one token: readers divide by the
    count.
    """
    writer = GGUFWriter(file, "")
    writer.add_key_value("general.type", "imatrix", GGUFValueType.STRING)
    writer.add_array("imatrix.datasets", [text])
    writer.add_uint32("imatrix.chunk_count", 1)
    writer.add_uint32("imatrix.chunk_size", MOMENT_TOKENS)
    for name, values in weighed.by_column():
        writer.add_tensor(f"{name}.in_sum2", values)
        writer.add_tensor(f"{name}.counts", np.ones((len(values), 1), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
