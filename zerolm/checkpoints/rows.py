"""Reading parts of files: bytes some at a time, and runs of rows into one buffer that is used again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.checkpoints.headers import TensorInfo

READ_BYTES: Final = 2 << 20
"""Bytes read at once: what stays in a core's own cache while it is summed up."""
INTEGERS: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def byte_blocks(file: Path, start: int, end: int, most: int) -> Iterator[bytes]:
    """Yield the bytes of a part of a file, at most ``most`` at a time; ``ValueError`` where it is cut off."""
    with file.open("rb", buffering=0) as opened:
        opened.seek(start)
        while start < end:
            block = opened.read(min(most, end - start))
            if not block:
                raise ValueError(f"{str(file)!r} was cut off while it was read")
            yield block
            start += len(block)


class RowReader:
    """The rows of a tensor, seen as a matrix of raw integers: axis 0 by all the others.

    What ``read`` returns is overwritten by the next call.
    """

    def __init__(self, tensor: TensorInfo, file: FileIO, block: int = READ_BYTES) -> None:
        self.tensor, self.file = tensor, file
        self.rows = tensor.shape[0] if tensor.shape else 1
        self.cols = math.prod(tensor.shape[1:])
        self.row_bytes = self.cols * tensor.item_bytes
        self.most = max(1, block // max(1, self.row_bytes))
        """How many rows fit the buffer."""
        self._buffer = np.empty(min(self.most, self.rows) * self.row_bytes, np.uint8)

    def read(self, first: int, last: int) -> NDArray[Any]:
        """Rows ``first`` to ``last`` (not included), at most ``most`` of them."""
        wanted = self._buffer[: (last - first) * self.row_bytes]
        self.file.seek(self.tensor.start + first * self.row_bytes)
        got = 0
        while got < wanted.size:
            new = self.file.readinto(wanted[got:].data)
            if not new:
                raise ValueError(f"{str(self.tensor.file)!r} was cut off while it was read")
            got += new
        return wanted.view(INTEGERS[self.tensor.item_bytes]).reshape(last - first, self.cols)

    def blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """All rows in runs that fit the buffer, each with the number of its first row."""
        if self.row_bytes:
            for first in range(0, self.rows, self.most):
                yield first, self.read(first, min(first + self.most, self.rows))


@contextmanager
def row_reader(tensor: TensorInfo, block: int = READ_BYTES) -> Iterator[RowReader]:
    with open(tensor.file, "rb", buffering=0) as file:
        yield RowReader(tensor, file, block)
