"""The pieces that a GGUF file has of stored tensors: some apart that are fused, some in another order.

What is fused unit by unit ([query, key, value] of each head) lies in the file part by part. All experts of a
layer are one tensor there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Ints
from zerolm.carving.export.child_tensors import ChildTensor
from zerolm.families.config import COUNT_LABELS, ModelSizes
from zerolm.families.rule import value

LATENT: Final = "kv_b"
"""The role of keys and values that are made of a latent vector: a file has matrices for each head."""


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of a stored tensor under a ``name`` of its own: ``rows`` of its axis number ``axis``, in order.

    ``shape`` is that of the piece; ``arranged`` makes it of what was taken.
    """

    name: str
    shape: tuple[int, ...]
    axis: int
    rows: Ints | slice
    arranged: Callable[[NDArray[Any]], NDArray[Any]]

    def of(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Return the piece of a stored tensor."""
        taken = stored[(slice(None),) * self.axis + (self.rows,)]
        return np.ascontiguousarray(self.arranged(taken))


def pieces(
    tensor: ChildTensor, experts: int | None, name: str, rows: Ints | slice = slice(None)
) -> Iterator[Piece]:
    """Yield the pieces of a child's tensor, of so many ``experts`` that are stored one by one, if any.

    ``name`` is what the file calls it; names of parts that are apart there are joined by ``+``. ``rows`` is
    the order of the rows of what is not fused. ``ValueError`` where a file has other parts.
    """
    names, slot = name.split("+"), tensor.slot
    shape, axes = tensor.shape, slot.axes
    if experts is not None:
        shape, axes = (experts, *shape), ("", *axes)
    axis, parts = _fused(tensor, axes, shape)
    turned = slot.transposed and len(shape) > 1
    if slot.role == LATENT and len(names) > 1:
        yield from _of_latent(names, tensor, shape)
        return
    together = np.concatenate(parts) if parts and len(slot.role.split("+")) > 1 else rows
    taken_rows: Sequence[Ints | slice] = parts if len(names) > 1 else [together]
    if len(taken_rows) != len(names):
        raise ValueError(f"gguf has {name!r} as {len(names)} tensors, and {tensor.source!r} has other parts")
    for one, taken in zip(names, taken_rows, strict=True):
        length = shape[axis] if isinstance(taken, slice) else len(taken)
        whole = (*shape[:axis], length, *shape[axis + 1 :])
        yield Piece(
            one,
            (*whole[:-2], whole[-1], whole[-2]) if turned else whole,
            axis,
            taken,
            (lambda values: values.swapaxes(-1, -2)) if turned else (lambda values: values),
        )


def _fused(tensor: ChildTensor, axes: tuple[str, ...], shape: tuple[int, ...]) -> tuple[int, list[Ints]]:
    """Return the axis along which something is fused, and where each part lies; the first axis otherwise."""
    layout = tensor.child.parent.layout
    for axis, label in enumerate(axes):
        if "+" in label:
            sizes = [_kept(tensor, part, layout.sizes) for part in label.split("+")]
            ends = np.cumsum([0, *sizes])
            return axis, [np.arange(first, last) for first, last in pairwise(ends)]
        sizes = _parts_of_unit(tensor, label)
        if sizes:
            return axis, _of_units(sizes, shape[axis])
    return 0, []


def _parts_of_unit(tensor: ChildTensor, label: str) -> list[int]:
    """Return how many elements each part of a unit has, along an axis that is made of units of several."""
    checkpoint = tensor.child.parent
    axis = checkpoint.family.config.axes.get(label)
    if axis is None or len(axis.parts) < 2:
        return []
    layout = checkpoint.layout
    return [value(part, lambda of: _size(layout, of)) for part in axis.parts]


def _size(sizes: ModelSizes, label: str) -> int:
    return int(getattr(sizes, label)) if label in COUNT_LABELS else sizes.sizes[label]


def _of_units(parts: Sequence[int], length: int) -> list[Ints]:
    """Return where the parts lie of all units in turn: all queries, all keys, all values."""
    unit, start, places = sum(parts), 0, []
    for part in parts:
        within = np.arange(start, start + part)
        places.append((np.arange(0, length, unit)[:, None] + within).ravel())
        start += part
    return places


def _kept(tensor: ChildTensor, label: str, sizes: dict[str, int]) -> int:
    """Return how many elements of a part the child has."""
    kept = None if tensor.kept is None else tensor.child.cut.kept(tensor.kept, label)
    if label == "hidden":
        return tensor.child.cut.hidden
    return sizes[label] if kept is None else len(kept)


def _of_latent(names: list[str], tensor: ChildTensor, shape: tuple[int, ...]) -> Iterator[Piece]:
    """Yield keys (heads, rank, size) and values (heads, size, rank) of rows that are fused by head."""
    sizes = _parts_of_unit(tensor, tensor.slot.axes[0])
    heads, rank = shape[0] // sum(sizes), shape[1]
    for number, (one, rows) in enumerate(zip(names, _of_units(sizes, shape[0]), strict=True)):
        size, is_key = sizes[number], number == 0

        def arranged(values: NDArray[Any], size: int = size, is_key: bool = is_key) -> NDArray[Any]:
            matrices = values.reshape(-1, size, values.shape[-1])
            return matrices.swapaxes(1, 2) if is_key else matrices

        yield Piece(one, (heads, rank, size) if is_key else (heads, size, rank), 0, rows, arranged)
