"""The pieces of stored tensors in a GGUF file: some fused tensors are split there, some are reordered.

A tensor that is fused unit by unit ([query, key, value] of each head) is stored part by part in the file. All
experts of a layer are one tensor there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Ints
from zerolm.checkpoints.gguf.names import form_in
from zerolm.children.child_tensors import ChildTensor
from zerolm.families.rule import value

LATENT: Final = "kv_b"
"""The role of the matrix of keys and values from a latent vector: a file has one matrix for each head."""


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of a stored tensor with its own ``name``: ``rows`` of its axis number ``axis``, in order.

    ``shape`` is that of the piece; ``arranged`` makes it from the selected rows, and ``restored`` is the
    inverse. Both accept any number of experts.
    """

    name: str
    shape: tuple[int, ...]
    axis: int
    rows: Ints | slice
    arranged: Callable[[NDArray[Any]], NDArray[Any]]
    restored: Callable[[NDArray[Any]], NDArray[Any]]

    def of(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Return the piece of a stored tensor."""
        return np.ascontiguousarray(self.arranged(stored[self._taken]))

    def put(self, stored: NDArray[Any], values: NDArray[Any]) -> None:
        """Put the piece into a stored tensor, in place: the inverse of ``of``."""
        stored[self._taken] = self.restored(values)

    @property
    def _taken(self) -> tuple[Ints | slice, ...]:
        return (slice(None),) * self.axis + (self.rows,)


def pieces(
    tensor: ChildTensor, experts: int | None, name: str, rows: Ints | slice = slice(None)
) -> Iterator[Piece]:
    """Yield the pieces of a child's tensor, of ``experts`` experts that are stored one by one, if any.

    ``name`` is the file's name; where the file splits the tensor, the names of the parts are joined by ``+``.
    ``rows`` is the order of the rows of a tensor that is not fused. Raises ``ValueError`` where a file has
    other parts.
    """
    names, slot = name.split("+"), tensor.slot
    shape, axes = tensor.shape, slot.axes
    if experts is not None:
        shape, axes = (experts, *shape), ("", *axes)
    axis, parts = _fused(tensor, axes, shape)
    names, parts = _joined(names, parts)
    turned = slot.transposed and len(shape) > 1
    if slot.role == LATENT and len(names) > 1:
        yield from _of_latent(names, tensor, shape)
        return
    is_rearranged = len(parts) == 1 or len(slot.role.split("+")) > 1
    together = np.concatenate(parts) if parts and is_rearranged else rows
    taken_rows: Sequence[Ints | slice] = parts if len(names) > 1 else [together]
    if len(taken_rows) != len(names):
        raise ValueError(f"gguf has {name!r} as {len(names)} tensors, and {tensor.source!r} has other parts")
    for one, taken in zip(names, taken_rows, strict=True):
        length = shape[axis] if isinstance(taken, slice) else len(taken)
        whole = (*shape[:axis], length, *shape[axis + 1 :])
        across = (*whole[:-2], whole[-1], whole[-2]) if turned else whole
        as_there = _shape_in_file(tensor) or across

        def arranged(values: NDArray[Any], as_there: tuple[int, ...] = as_there) -> NDArray[Any]:
            return (values.swapaxes(-1, -2) if turned else values).reshape(-1, *as_there[1:])

        def restored(values: NDArray[Any], across: tuple[int, ...] = across) -> NDArray[Any]:
            values = values.reshape(-1, *across[1:])
            return values.swapaxes(-1, -2) if turned else values

        yield Piece(one, as_there, axis, taken, arranged, restored)


def _joined(names: list[str], parts: list[Ints]) -> tuple[list[str], list[Ints]]:
    """Return names and parts, with neighbouring parts of the same name merged."""
    if len(names) != len(parts) or len(set(names)) == len(names):
        return names, parts
    groups = [list(group) for _, group in groupby(zip(names, parts, strict=True), key=lambda pair: pair[0])]
    merged = [np.concatenate([part for _, part in group]) for group in groups]
    return [group[0][0] for group in groups], merged


def _shape_in_file(tensor: ChildTensor) -> tuple[int, ...]:
    """Return the shape in a file according to the family's document; empty where it has none."""
    checkpoint = tensor.child.parent
    rules = form_in(checkpoint.family, tensor.role).shape
    return tuple(value(rule, checkpoint.layout.size) for rule in rules)


def _fused(tensor: ChildTensor, axes: tuple[str, ...], shape: tuple[int, ...]) -> tuple[int, list[Ints]]:
    """Return the fused axis, and the indices of each part; without one the first axis and no parts."""
    layout = tensor.child.parent.layout
    for axis, label in enumerate(axes):
        if "+" in label:
            labels = label.split("+")
            ends = np.cumsum([0, *(_kept(tensor, part, layout.sizes) for part in labels)])
            return axis, [
                first + _tiled(tensor, part, last - first)
                for part, (first, last) in zip(labels, pairwise(ends), strict=True)
            ]
        if label in _tiles(tensor):
            return axis, [_tiled(tensor, label, shape[axis])]
        sizes = _parts_of_unit(tensor, label)
        if sizes:
            return axis, _of_units(sizes, shape[axis])
    return 0, []


def _tiles(tensor: ChildTensor) -> dict[str, str]:
    gguf = tensor.child.parent.family.gguf
    return gguf.tiled if gguf else {}


def _tiled(tensor: ChildTensor, label: str, length: int) -> Ints:
    """Return the order in a file of ``length`` elements of an axis."""
    checkpoint, groups = tensor.child.parent, _tiles(tensor).get(label)
    if groups is None:
        return np.arange(length)
    axis = checkpoint.family.config.axes.get(label)
    unit = 1 if axis is None else length // checkpoint.layout.size(axis.each)
    return in_turn(length, checkpoint.layout.size(groups), unit)


def in_turn(length: int, groups: int, unit: int) -> Ints:
    """Return the order of elements with the first unit of each group first, then the second of each ...

    There are ``groups`` consecutive groups of equal numbers of units, and ``unit`` elements in a unit. Raises
    ``ValueError`` where they do not divide the length.
    """
    if length % (groups * unit):
        raise ValueError(f"{length} is not divisible by {groups} groups of units of {unit}")
    return np.arange(length).reshape(groups, -1, unit).swapaxes(0, 1).ravel()


def _parts_of_unit(tensor: ChildTensor, label: str) -> list[int]:
    """Return the number of elements of each part of a unit, along an axis whose units have several parts."""
    checkpoint = tensor.child.parent
    axis = checkpoint.family.config.axes.get(label)
    if axis is None or len(axis.parts) < 2:
        return []
    return [value(part, checkpoint.layout.size) for part in axis.parts]


def _of_units(parts: Sequence[int], length: int) -> list[Ints]:
    """Return the indices of each part over all units: all queries, all keys, all values."""
    unit, start, places = sum(parts), 0, []
    for part in parts:
        within = np.arange(start, start + part)
        places.append((np.arange(0, length, unit)[:, None] + within).ravel())
        start += part
    return places


def _kept(tensor: ChildTensor, label: str, sizes: dict[str, int]) -> int:
    """Return the number of elements of a part that the child has."""
    kept = None if tensor.kept is None else tensor.child.cut.kept(tensor.kept, label)
    if label == "hidden":
        return tensor.child.cut.hidden
    return sizes[label] if kept is None else len(kept)


def _of_latent(names: list[str], tensor: ChildTensor, shape: tuple[int, ...]) -> Iterator[Piece]:
    """Yield keys (heads, rank, size) and values (heads, size, rank) from rows that are fused by head."""
    sizes = _parts_of_unit(tensor, tensor.slot.axes[0])
    heads, rank = shape[0] // sum(sizes), shape[1]
    for number, (one, rows) in enumerate(zip(names, _of_units(sizes, shape[0]), strict=True)):
        size, is_key = sizes[number], number == 0

        def arranged(values: NDArray[Any], size: int = size, is_key: bool = is_key) -> NDArray[Any]:
            matrices = values.reshape(-1, size, values.shape[-1])
            return matrices.swapaxes(1, 2) if is_key else matrices

        def restored(values: NDArray[Any], is_key: bool = is_key) -> NDArray[Any]:
            matrices = values.swapaxes(1, 2) if is_key else values
            return matrices.reshape(-1, matrices.shape[-1])

        shape_in_file = (heads, rank, size) if is_key else (heads, size, rank)
        yield Piece(one, shape_in_file, 0, rows, arranged, restored)
