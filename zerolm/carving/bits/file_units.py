"""The units along the axes of a file's tensors, wherever the file puts their rows and columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from zerolm.architecture import Ints
from zerolm.children.gguf.file_tensors import StoredStack
from zerolm.children.gguf.pieces import Piece
from zerolm.families.family import BIAS
from zerolm.units.kept_units import Dimensions
from zerolm.units.stream.narrowing import writes
from zerolm.units.within_layers import NAMES

MATRICES, ROWS, COLUMNS = range(3)
"""The axes of a piece of a file, (m, n, k)."""


@dataclass(frozen=True, eq=False)
class UnitsAlong:
    """The units along one ``axis`` of a piece of a file, (m, n, k); ``unit`` is their place in ``UNITS``.

    ``numbers`` has the unit of each element along the axis, -1 where it belongs to none. ``unit`` is None
    where the piece has no units. ``stream`` is the axis along the residual stream, if there is one.
    """

    shape: tuple[int, int, int]
    stream: int | None = None
    unit: int | None = None
    axis: int = ROWS
    numbers: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    whole: int = 0

    def shaped(self, count: int, hidden: int) -> tuple[int, int, int]:
        """Return the shape (m, n, k) with this number of units, and a stream of this width."""
        lengths = list(self.shape)
        if self.unit is not None:
            belong = int((self.numbers >= 0).sum())
            lengths[self.axis] = len(self.numbers) - belong + belong // self.whole * count
        if self.stream is not None:
            lengths[self.stream] = hidden
        m, n, k = lengths
        return m, n, k

    def kept(self, units: Ints) -> Ints:
        """Return the positions along the axis that the kept ``units`` leave, ascending."""
        return np.flatnonzero((self.numbers < 0) | np.isin(self.numbers, units))


def units_along(stack: StoredStack, piece: Piece, parent: Dimensions) -> UnitsAlong:
    """Return the units of a piece of an uncut file; ``ValueError`` for one with units of several kinds."""
    first = stack.first
    m, n, k = (1, *piece.shape)[-3:] if len(piece.shape) > 1 else (1, *piece.shape, 1)
    stream = _stream_axis(stack, (m, n, k))
    labels = first.slot.axes if first.kept is not None else ()
    axes = {axis: list(parent.parts(label)) for axis, label in enumerate(labels)}
    cut = {axis: parts for axis, parts in axes.items() if parts}
    kinds = {part.kind for parts in cut.values() for part in parts}
    if not cut:
        return UnitsAlong((m, n, k), stream)
    if len(cut) > 1 or len(kinds) > 1:
        raise ValueError(f"{first.source!r} has units of several kinds, whose types are not planned")
    ((stored_axis, parts),) = cut.items()
    stored = first.info.shape
    numbers = np.full(stored[stored_axis], -1, np.int32)
    for part in parts:
        numbers[part.start : part.start + part.length] = np.arange(part.length) // part.unit
    along = numbers.reshape([-1 if axis == stored_axis else 1 for axis in range(len(stored))])
    arranged = piece.of(np.broadcast_to(along, stored)).reshape(m, n, k)
    kind = next(iter(kinds))
    for axis in range(3):
        others = tuple(other for other in range(3) if other != axis)
        line = arranged.transpose(axis, *others)[:, 0, 0]
        if (arranged == np.expand_dims(line, others)).all():
            unit, whole = NAMES.index(kind), parent.wholes[kind]
            return UnitsAlong((m, n, k), stream, unit, axis, line.astype(np.int64), whole)
    raise ValueError(f"{first.source!r} has units along several axes of its tensor in a file")


def _stream_axis(stack: StoredStack, shape: tuple[int, int, int]) -> int | None:
    """Return the axis along the residual stream of a piece (m, n, k): its rows where it is written."""
    first = stack.first
    if "hidden" not in first.slot.axes:
        return None
    is_written = writes(first.role) and not first.role.endswith(BIAS)
    axis = ROWS if len(first.slot.axes) == 1 or is_written else COLUMNS
    is_whole = shape[axis] == first.info.shape[first.slot.axes.index("hidden")]
    return axis if is_whole else None
