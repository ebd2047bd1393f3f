"""The units along the axes of a file's tensors, wherever the file puts their rows and columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zerolm.architecture import Ints
from zerolm.children.gguf.file_tensors import StoredStack
from zerolm.children.gguf.pieces import Piece
from zerolm.units.kept_units import Dimensions
from zerolm.units.within_layers import NAMES

MATRICES, ROWS, COLUMNS = range(3)
"""The axes of a piece of a file, (m, n, k)."""


@dataclass(frozen=True, eq=False)
class UnitsAlong:
    """The units along one ``axis`` of a piece of a file, (m, n, k); ``unit`` is their place in ``UNITS``.

    ``numbers`` has the unit of each element along the axis, -1 where it belongs to none. ``unit`` is None
    where the piece has no units, and is not cut.
    """

    shape: tuple[int, int, int]
    unit: int | None = None
    axis: int = ROWS
    numbers: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    whole: int = 0

    def shaped(self, count: int) -> tuple[int, int, int]:
        """Return the shape (m, n, k) with this number of units."""
        if self.unit is None:
            return self.shape
        belong = int((self.numbers >= 0).sum())
        length = len(self.numbers) - belong + belong // self.whole * count
        m, n, k = (length if axis == self.axis else size for axis, size in enumerate(self.shape))
        return m, n, k

    def kept(self, units: Ints) -> Ints:
        """Return the positions along the axis that the kept ``units`` leave, ascending."""
        return np.flatnonzero((self.numbers < 0) | np.isin(self.numbers, units))


def units_along(stack: StoredStack, piece: Piece, parent: Dimensions) -> UnitsAlong:
    """Return the units of a piece of a file whose child keeps all units.

    Raises ``ValueError`` for a tensor with units of several kinds.
    """
    first = stack.first
    m, n, k = (1, *piece.shape)[-3:] if len(piece.shape) > 1 else (1, *piece.shape, 1)
    labels = first.slot.axes if first.kept is not None else ()
    axes = {axis: list(parent.parts(label)) for axis, label in enumerate(labels)}
    cut = {axis: parts for axis, parts in axes.items() if parts}
    kinds = {part.kind for parts in cut.values() for part in parts}
    if not cut:
        return UnitsAlong((m, n, k))
    if len(cut) > 1 or len(kinds) > 1:
        raise ValueError(f"{first.source!r} has units of several kinds, whose types are not planned")
    ((stored_axis, parts),) = cut.items()
    shape = first.info.shape
    numbers = np.full(shape[stored_axis], -1, np.int32)
    for part in parts:
        numbers[part.start : part.start + part.length] = np.arange(part.length) // part.unit
    along = numbers.reshape([-1 if axis == stored_axis else 1 for axis in range(len(shape))])
    arranged = piece.of(np.broadcast_to(along, shape)).reshape(m, n, k)
    kind = next(iter(kinds))
    for axis in range(3):
        others = tuple(other for other in range(3) if other != axis)
        line = arranged.transpose(axis, *others)[:, 0, 0]
        if (arranged == np.expand_dims(line, others)).all():
            return UnitsAlong((m, n, k), NAMES.index(kind), axis, line.astype(np.int64), parent.wholes[kind])
    raise ValueError(f"{first.source!r} has units along several axes of its tensor in a file")
