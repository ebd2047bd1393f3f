"""Sums of squares, absolute sums and extremes of the rows and columns of a stored matrix, block by block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Floats
from zerolm.checkpoints.dtypes import widened
from zerolm.checkpoints.headers import TensorInfo
from zerolm.checkpoints.rows import row_reader


@dataclass(frozen=True, slots=True)
class Sums:
    """Of each row or column, (n,): sums of squares and of absolute values, largest and smallest value."""

    squares: Floats
    absolute: Floats
    largest: NDArray[np.floating[Any]]
    smallest: NDArray[np.floating[Any]]

    @classmethod
    def empty(cls, count: int) -> Sums:
        """Sums of nothing, to be added to; extremes in float32, for no weight has more digits."""
        extremes = (np.full(count, end, np.float32) for end in (-np.inf, np.inf))
        return cls(np.zeros(count), np.zeros(count), *extremes)

    def widened(self) -> Sums:
        """The same, all in float64."""
        return Sums(*(getattr(self, column.name).astype(np.float64) for column in fields(self)))

    def add(self, more: Sums, at: slice = slice(None)) -> None:
        """Take in further values of the same rows or columns."""
        self.squares[at] += more.squares
        self.absolute[at] += more.absolute
        np.maximum(self.largest[at], more.largest, out=self.largest[at])
        np.minimum(self.smallest[at], more.smallest, out=self.smallest[at])

    def together(self) -> Sums:
        """The sums over all rows (or all columns), as if they were one."""
        sums = (column.sum(keepdims=True) for column in (self.squares, self.absolute))
        extremes = self.largest.max(initial=-np.inf), self.smallest.min(initial=np.inf)
        return Sums(*sums, *(np.array([extreme]) for extreme in extremes))

    def totals(self, count: int) -> Totals:
        """The sums over all rows (or all columns) of a tensor of ``count`` weights."""
        if not count:
            return Totals(0, 0.0, 0.0, 0.0, 0.0)
        sums = float(self.squares.sum()), float(self.absolute.sum())
        return Totals(count, *sums, float(self.largest.max()), float(self.smallest.min()))


@dataclass(frozen=True, slots=True)
class Totals:
    """The same of a whole tensor of ``count`` weights."""

    count: int
    squares: float
    absolute: float
    largest: float
    smallest: float


Summing = Callable[[NDArray[Any], str], tuple[Sums, Sums]]
"""From a block of raw integers (n, m) and its dtype to the sums of its rows (n,) and columns (m,)."""


def plain(raw: NDArray[Any], dtype: str) -> tuple[Sums, Sums]:
    """A ``Summing`` in numpy, float64 throughout."""
    axes = (1, 0)
    with np.errstate(invalid="ignore"):  # what is not finite is found in the sums
        values = widened(raw, dtype).astype(np.float64)
        largest, smallest = ([extreme(axis) for axis in axes] for extreme in (values.max, values.min))
        np.abs(values, out=values)
        absolute = [values.sum(axis) for axis in axes]
        np.square(values, out=values)
        squares = [values.sum(axis) for axis in axes]
    rows, cols = map(Sums, squares, absolute, largest, smallest)
    return rows, cols


def sums_of(tensor: TensorInfo, summing: Summing) -> tuple[Sums, Sums]:
    """Sums of each row and each column of a tensor; one without two axes is a single row.

    Raises ``ValueError`` that names the tensor if a weight is infinite or no number.
    """
    with row_reader(tensor) as reader:
        is_matrix = len(tensor.shape) == 2
        rows = Sums.empty(reader.rows if is_matrix else 1)
        cols = Sums.empty(reader.cols if is_matrix else 0)
        for first, block in reader.blocks():
            if is_matrix:
                new_rows, new_cols = summing(block, tensor.dtype)
                rows.add(new_rows, slice(first, first + len(block)))
                cols.add(new_cols)
            else:
                rows.add(summing(block.reshape(1, -1), tensor.dtype)[0])
    if tensor.count and not np.isfinite([rows.largest.max(), rows.smallest.min()]).all():
        raise ValueError(f"tensor {tensor.name!r} in {str(tensor.file)!r} has weights that are not finite")
    return rows, cols
