"""A checkpoint with fewer experts, byte for byte: what is left of each tensor, and the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Ints
from zerolm.carving.experts.listed_modules import renumbered
from zerolm.carving.export.folder import configuration
from zerolm.carving.kept_units import Cut, dimensions
from zerolm.checkpoints import Checkpoint, Outgoing, Span, TensorInfo, sliced
from zerolm.checkpoints.dtypes import narrowed, widened
from zerolm.checkpoints.layout import Layout, Slot
from zerolm.checkpoints.packed import PackedTensor, packed_tensors, packing_of, quantisation_of
from zerolm.checkpoints.writer import Chunk
from zerolm.families.values import part_at

AXIS: Final = "experts"
"""The label of an axis with one row for each expert: of routers, their biases, scales, matrices of all."""
ROUTER: Final = "router"
DOWN: Final = "experts_down"
DOWN_NAME: Final = "down_proj"
"""The stock classes' parameter of the down projections of all experts of a layer."""
BOTH_NAME: Final = "gate_up_proj"
"""That of gates and up projections, the gates first where they are stored apart."""
HALVES: Final = {"experts_gate": 0, "experts_up": 1}
Matrices = dict[int, NDArray[np.float32]]
"""One parameter of a layer's experts by the number of the expert in the parent, as the stock class has it."""
Changes = dict[str, Matrices]
"""New values of a layer's experts by the stock class's name of the parameter."""


@dataclass(frozen=True, eq=False)
class FewerExperts:
    """A checkpoint, and the numbers of the experts that stay in each layer that has any, ascending.

    All layers keep as many: stock classes have one number for all. ``changed`` are by layer what takes the
    place of the parent's: experts that others were merged into, down projections that were solved again.
    """

    parent: Checkpoint
    by_layer: Mapping[int, Ints]
    changed: Mapping[int, Changes] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many experts a layer keeps."""
        return len(next(iter(self.by_layer.values())))

    def outgoing(self) -> list[Outgoing]:
        """Return the child's tensors in the order of the parent's files, read when their turn comes.

        Rows of a tensor that stay are copied; one tensor of an expert is copied, or left out, as a whole.
        """
        layout, tensors = self.parent.layout, list[Outgoing]()
        for name, info in self.parent.tensors.items():
            slot = layout.slots.get(name)
            if slot is not None or name in layout.carried:
                tensors += self._left_of(info, slot)
        return tensors

    def _left_of(self, info: TensorInfo, slot: Slot | None) -> list[Outgoing]:
        """Return what is left of a tensor, or of those that hold it; ``ValueError`` where it is not cut."""
        kept = None if slot is None or slot.layer is None else self.by_layer.get(slot.layer)
        if slot is None or kept is None:
            return [_whole(part.name, part) for part in info.stored]
        if slot.expert is not None:
            place = int(kept.searchsorted(slot.expert))
            if place == len(kept) or kept[place] != slot.expert:
                return []
            name, matrix = _renamed(info.name, slot.expert, place), self._changed(slot).get(slot.expert)
            if matrix is not None:
                return [Outgoing(name, info.dtype, info.shape, lambda: [_stored(matrix, info)])]
            return [_whole(_renamed(part.name, slot.expert, place), part) for part in info.stored]
        if AXIS not in slot.axes:
            return [_whole(part.name, part) for part in info.stored]
        axis = slot.axes.index(AXIS)
        if self._changed(slot):
            shape = (len(kept), *info.shape[1:])
            return [Outgoing(info.name, info.dtype, shape, lambda: self._experts(info, slot, kept))]
        if isinstance(info, PackedTensor) and not (slot.of_experts and axis == 0):
            raise ValueError(
                f"tensor {info.name!r} is stored in {info.dtype}, whose blocks hold rows of several experts"
            )
        return [_rows(part, axis, kept) for part in info.stored]

    def _changed(self, slot: Slot) -> Matrices:
        """Return the new values of a tensor by expert, none where it is as it was.

        Where gates and up projections are stored apart they are halves of one parameter of the stock class.
        """
        changes = {} if slot.layer is None or not slot.of_experts else self.changed.get(slot.layer, {})
        name = slot.parameter.rpartition(".")[2]
        half = HALVES.get(slot.role)
        if name != BOTH_NAME or half is None:
            return changes.get(name, {})
        return {
            expert: np.split(matrix, 2, slot.transposed)[half]
            for expert, matrix in changes.get(name, {}).items()
        }

    def _experts(self, info: TensorInfo, slot: Slot, kept: Ints) -> Iterable[Chunk]:
        """Yield what stays of a tensor of all experts, the new ones among them."""
        changed = self._changed(slot)
        for expert in kept.tolist():
            matrix, one = changed.get(expert), info.one(expert)
            yield Span(one.file, one.start, one.end) if matrix is None else _stored(matrix, one)

    def as_stored(self, layer: int, name: str, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return a value of a parameter of a layer's experts as its stored type rounds it."""
        slots = ((stored, slot) for stored, slot in self.parent.layout.slots.items() if slot.layer == layer)
        tensor = next(
            stored for stored, slot in slots if slot.of_experts and slot.parameter.rpartition(".")[2] == name
        )
        kind = self.parent.tensors[tensor].dtype
        return widened(narrowed(matrix, kind).reshape(-1), kind).reshape(matrix.shape)

    def configuration(self) -> dict[str, Any]:
        """Return the configuration of the child: the parent's, with another number of experts."""
        parent = self.parent
        config = configuration(parent, Cut.whole(dimensions(parent)))
        at = part_at(parent.family, config)
        part = dict(config if at is None else config[at])
        described = parent.family.config.sizes[AXIS]
        if described.field:
            part[described.field] = self.count
        part |= {name: self.count for name in described.also if name in part}
        return renumbered(part if at is None else config | {at: part}, self.by_layer)

    def shaped(self) -> Checkpoint:
        """Return the child as a checkpoint that can be counted: its tensors have shapes and no bytes.

        ``ValueError`` where what is left does not fit its configuration.
        """
        parent, config = self.parent, self.configuration()
        somewhere = next(iter(parent.tensors.values())).file
        tensors: dict[str, TensorInfo] = {
            tensor.name: TensorInfo(tensor.name, tensor.dtype, tensor.shape, somewhere, 0, 0)
            for tensor in self.outgoing()
        }
        quantisation = quantisation_of(config)
        if quantisation is not None:
            tensors = packed_tensors(packing_of(quantisation), tensors)
        layout = Layout.of(parent.family, config, tensors)
        return replace(parent, config=config, layout=layout, tensors=tensors, shards=())


def expert_layers(checkpoint: Checkpoint) -> list[int]:
    """Return the layers that have experts, ascending."""
    layout = checkpoint.layout
    return [layer for layer in range(layout.depth) if layout.name(ROUTER, layer) is not None]


def expert_matrices(checkpoint: Checkpoint, layer: int) -> list[list[TensorInfo]]:
    """Return the matrices of each expert of a layer, where they lie: (rows, columns) each, no bytes read."""
    layout = checkpoint.layout
    matrices: list[list[TensorInfo]] = [[] for _ in range(layout.sizes[AXIS])]
    for key, name in layout.layer(layer).items():
        slot, info = layout.slots[name], checkpoint.tensors[name]
        if not slot.is_matrix or not slot.of_experts:
            continue
        if slot.expert is not None:
            matrices[slot.expert].append(info)
            continue
        for expert in range(info.shape[0]):
            matrices[expert].append(replace(info.one(expert), name=f"{key}.{expert}"))
    return matrices


def _stored(matrix: NDArray[np.float32], info: TensorInfo) -> Chunk:
    """Return a matrix as a stored one is: of its type, and turned where that is."""
    shape = info.shape[-2:]
    return narrowed(matrix if matrix.shape == shape else matrix.T, info.dtype)


def _whole(name: str, info: TensorInfo) -> Outgoing:
    return Outgoing(name, info.dtype, info.shape, lambda: [Span(info.file, info.start, info.end)])


def _rows(info: TensorInfo, axis: int, kept: Ints) -> Outgoing:
    shape = tuple(len(kept) if place == axis else size for place, size in enumerate(info.shape))
    flat = info if axis else replace(info, shape=(info.shape[0], info.count // info.shape[0]))
    return Outgoing(info.name, info.dtype, shape, _reading(flat, axis, kept))


def _reading(flat: TensorInfo, axis: int, kept: Ints) -> Callable[[], Iterable[Chunk]]:
    return lambda: sliced(flat, {axis: kept})


def _renamed(name: str, expert: int, place: int) -> str:
    """Return the name of an expert's tensor with another number of the expert; that of its layer stays."""
    before, _, after = name.rpartition(f".{expert}.")
    return f"{before}.{place}.{after}"
