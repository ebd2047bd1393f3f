"""A checkpoint with fewer experts, byte for byte: the kept part of each tensor, and the configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Ints
from zerolm.checkpoints import Checkpoint, Outgoing, TensorInfo, sliced
from zerolm.checkpoints.dtypes import narrowed, widened
from zerolm.checkpoints.layout import Layout, Slot
from zerolm.checkpoints.packed_values import PackedTensor
from zerolm.checkpoints.smaller import packed_in, smaller
from zerolm.checkpoints.writer import Chunk
from zerolm.children.folder import configuration
from zerolm.families.values import part_at
from zerolm.io.files import write_json
from zerolm.progress import Progress, silent
from zerolm.units.kept_units import Cut, dimensions

AXIS: Final = "experts"
"""The label of an axis with one row for each expert: of routers, their biases, scales, matrices of all
experts."""
NEURONS: Final = "expert_ffn"
"""The label of an axis with one row, or one for each part of its units, for each neuron of an expert."""
SHARED: Final = "shared"
OF_SHARED: Final = "shared*expert_ffn"
"""The width of shared experts where the configuration counts them in widths of the others."""
ROUTER: Final = "router"
DOWN: Final = "experts_down"
Matrices = dict[int, NDArray[np.float32]]
"""Down projections of a layer by the number of the expert in the parent, each in the layout of the stock
class."""
FIELD: Final = "quantization_config"
EXPERT: Final = re.compile(r"(.*\blayers\.(\d+)\..*\bexperts\.)(\d+)(\b.*)")
"""The name of a module of one expert, or a prefix of it: before, layer, expert, behind."""
PATTERN: Final = "re:"
NUMBERED: Final = re.compile(r"experts\\?\.[\[(]?\d")
"""A regular expression that selects experts by their numbers."""


@dataclass(frozen=True, eq=False)
class FewerExperts:
    """A checkpoint, and the numbers of the kept experts of each layer with experts, ascending.

    All layers keep the same number: stock classes have one number for all. ``changed`` are by layer the
    refitted down projections, which replace the parent's. ``neurons`` are by layer the kept ones (e, n) of
    each kept expert, ascending; all where it is empty. Changed projections have all neurons of the parent.
    """

    parent: Checkpoint
    by_layer: Mapping[int, Ints]
    changed: Mapping[int, Matrices] = field(default_factory=dict)
    neurons: Mapping[int, Ints] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of experts that a layer keeps."""
        return len(next(iter(self.by_layer.values())))

    @property
    def width(self) -> int:
        """The number of neurons that an expert keeps."""
        kept = next(iter(self.neurons.values()), None)
        return self.parent.layout.sizes.get(NEURONS, 0) if kept is None else kept.shape[1]

    def neurons_of(self, layer: int, expert: int) -> Ints | None:
        """Return the kept neurons (n,) of a kept expert; None where all are kept."""
        kept = self.neurons.get(layer)
        return None if kept is None else kept[int(self.by_layer[layer].searchsorted(expert))]

    def outgoing(self) -> list[Outgoing]:
        """Return the child's tensors in the order of the parent's files; each is read when it is written."""
        layout, tensors = self.parent.layout, list[Outgoing]()
        for name, info in self.parent.tensors.items():
            slot = layout.slots.get(name)
            if slot is not None or name in layout.carried:
                tensors += self._kept_part_of(info, slot)
        return tensors

    def _kept_part_of(self, info: TensorInfo, slot: Slot | None) -> list[Outgoing]:
        """Return the kept part of a tensor, or of those that hold it; ``ValueError`` if it cannot be cut."""
        kept = None if slot is None or slot.layer is None else self.by_layer.get(slot.layer)
        if slot is None or kept is None or (slot.expert is None and AXIS not in slot.axes):
            return [Outgoing.copied(part) for part in info.stored]
        expert, narrow, changed = slot.expert, self._narrow(slot), self._changed(slot)
        inner = list(info.shape[1:] if expert is None else info.shape)
        if narrow is not None:
            along, places = narrow
            inner[along] = len(places) * self.width
        if expert is not None:
            place = int(kept.searchsorted(expert))
            if place == len(kept) or kept[place] != expert:
                return []
            if narrow is None and expert not in changed:
                return [Outgoing.copied(part, _renamed(part.name, expert, place)) for part in info.stored]
            name = _renamed(info.name, expert, place)
            return [Outgoing(name, info.dtype, tuple(inner), lambda: self._expert(info, slot, expert))]
        axis = slot.axes.index(AXIS)
        if changed or narrow is not None:

            def parts() -> Iterable[Chunk]:
                for number in kept.tolist():
                    yield from self._expert(info.one(number), slot, number)

            return [Outgoing(info.name, info.dtype, (len(kept), *inner), parts)]
        if isinstance(info, PackedTensor) and not (slot.of_experts and axis == 0):
            raise ValueError(
                f"tensor {info.name!r} is stored in {info.dtype}, whose blocks hold rows of several experts"
            )
        return [_rows(part, axis, kept) for part in info.stored]

    def _narrow(self, slot: Slot) -> tuple[int, Ints] | None:
        """Return the axis along which an expert's tensor is cut, and the places of neurons on it, (p, m)."""
        return neurons_along(self.parent, slot) if self.neurons and slot.of_experts else None

    def _changed(self, slot: Slot) -> Matrices:
        """Return the new values of a tensor by expert; empty where it is unchanged."""
        return {} if slot.layer is None or slot.role != DOWN else self.changed.get(slot.layer, {})

    def _expert(self, tensor: TensorInfo, slot: Slot, expert: int) -> Iterable[Chunk]:
        """Yield the kept part of the tensor of one expert, new or unchanged."""
        matrix, narrow, kept = self._changed(slot).get(expert), self._narrow(slot), dict[int, Ints]()
        if narrow is not None:
            axis, places = narrow
            kept[axis] = np.sort(places[:, self.neurons_of(slot.layer or 0, expert)].reshape(-1))
        if matrix is None:
            yield from sliced(tensor, kept)
            return
        stored = matrix if matrix.shape == tensor.shape else matrix.T
        for axis, rows in kept.items():
            stored = stored.take(rows, axis)
        yield narrowed(stored, tensor.dtype)

    def as_stored(self, layer: int, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return a down projection of a layer, rounded to its stored type."""
        slots = self.parent.layout.slots.items()
        tensor = next(name for name, slot in slots if slot.layer == layer and slot.role == DOWN)
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
        if self.neurons:
            part = with_neurons(parent, part, self.width)
        return renumbered(part if at is None else config | {at: part}, self.by_layer)

    def checkpoint(self, folder: Path, *, progress: Progress = silent) -> Checkpoint:
        """Return the child as a checkpoint, with its new files in an empty folder."""
        parent, config = self.parent, self.configuration()
        place = folder / parent.folder.relative_to(parent.root)
        place.mkdir(parents=True, exist_ok=True)
        write_json(place / "config.json", config)
        return smaller(parent, self.outgoing(), config, folder, progress=progress)

    def shaped(self) -> Checkpoint:
        """Return the child for counting, without bytes; ``ValueError`` if its configuration does not fit."""
        parent, config = self.parent, self.configuration()
        somewhere = next(iter(parent.tensors.values())).file
        tensors: dict[str, TensorInfo] = {
            tensor.name: TensorInfo(tensor.name, tensor.dtype, tensor.shape, somewhere, 0, 0)
            for tensor in self.outgoing()
        }
        tensors = packed_in(config, tensors)
        layout = Layout.of(parent.family, config, tensors)
        return replace(parent, config=config, layout=layout, tensors=tensors, shards=())


def with_neurons(checkpoint: Checkpoint, config: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return a configuration whose experts have ``count`` neurons, and whose shared experts keep their width.

    Where shared experts are counted in widths of the others, their number grows; they are one matrix as
    before. Raises ``ValueError`` where that is not a whole number, or no field sets the width.
    """
    layout, sizes = checkpoint.layout, checkpoint.family.config.sizes
    described = sizes[NEURONS]
    if not described.field:  # as wide as another
        described = sizes.get(str(described.default), described)
    if not described.field:
        raise ValueError(f"a {checkpoint.family.name} has no field for the width of its experts")
    changed = {described.field: count} | {name: count for name in described.also if name in config}
    shared = layout.sizes.get(SHARED, 0)
    if shared and sizes["shared_ffn"].default == OF_SHARED:
        number, rest = divmod(shared * layout.sizes[NEURONS], count)
        if rest:
            raise ValueError(
                f"shared experts are {shared * layout.sizes[NEURONS]} wide, a multiple of the width of the "
                f"others, and {count} does not divide it"
            )
        names = (sizes[SHARED].field, *(name for name in sizes[SHARED].also if name in config))
        changed |= {str(name): number for name in names}
    return {**config, **changed}


def neurons_along(checkpoint: Checkpoint, slot: Slot) -> tuple[int, Ints] | None:
    """Return the axis of an expert's tensor that has neurons, and their places on it, (p, m); None without.

    Each neuron has p places: two where gate and up projections are fused.
    """
    axes = slot.axes[1:] if slot.expert is None else slot.axes
    every = (_neuron_places(checkpoint, label) for label in axes)
    return next(((axis, places) for axis, places in enumerate(every) if places is not None), None)


def _neuron_places(checkpoint: Checkpoint, label: str) -> Ints | None:
    size = checkpoint.layout.sizes.get(NEURONS, 0)
    labels, axis = label.split("+"), checkpoint.family.config.axes.get(label)
    if all(one == NEURONS for one in labels):  # one after the other
        return np.arange(len(labels) * size).reshape(len(labels), size)
    if axis is not None and axis.each == NEURONS:  # in turn
        return np.arange(checkpoint.layout.sizes[label]).reshape(size, -1).T
    return None


def expert_layers(checkpoint: Checkpoint) -> list[int]:
    """Return the layers with experts, ascending."""
    layout = checkpoint.layout
    return [layer for layer in range(layout.depth) if layout.name(ROUTER, layer) is not None]


def expert_matrices(checkpoint: Checkpoint, layer: int) -> Iterator[tuple[Slot, int, TensorInfo]]:
    """Yield the matrices of the experts of a layer, each with its slot and expert, unread.

    The matrix of one expert within a tensor of all is a place in its file, with another name.
    """
    layout = checkpoint.layout
    for key, name in layout.layer(layer).items():
        slot, info = layout.slots[name], checkpoint.tensors[name]
        if not slot.is_matrix or not slot.of_experts:
            continue
        if slot.expert is not None:
            yield slot, slot.expert, info
            continue
        for expert in range(info.shape[0]):
            yield slot, expert, replace(info.one(expert), name=f"{key}.{expert}")


def _rows(info: TensorInfo, axis: int, kept: Ints) -> Outgoing:
    shape = tuple(len(kept) if place == axis else size for place, size in enumerate(info.shape))
    flat = info if axis else replace(info, shape=(info.shape[0], info.count // info.shape[0]))
    return Outgoing(info.name, info.dtype, shape, lambda: sliced(flat, {axis: kept}))


def _renamed(name: str, expert: int, place: int) -> str:
    """Return the name of an expert's tensor with another number of the expert; the layer's is unchanged."""
    before, _, after = name.rpartition(f".{expert}.")
    return f"{before}.{place}.{after}"


def renumbered(config: Mapping[str, Any], by_layer: Mapping[int, Ints]) -> dict[str, Any]:
    """Return a configuration that lists the kept experts; ``ValueError`` for a pattern of their numbers."""
    changed = dict(config)
    for name, value in config.items():
        if name == FIELD:
            changed[name] = _listed(value, by_layer)
        elif isinstance(value, Mapping):
            changed[name] = renumbered(value, by_layer)
    return changed


def _listed(value: Any, by_layer: Mapping[int, Ints]) -> Any:
    """Return a value of the field with all lists of names in it renumbered."""
    if isinstance(value, Mapping):
        return {name: _listed(each, by_layer) for name, each in value.items()}
    if not isinstance(value, list):
        return value
    names = (_named(each, by_layer) if isinstance(each, str) else _listed(each, by_layer) for each in value)
    return [name for name in names if name is not None]


def _named(name: str, by_layer: Mapping[int, Ints]) -> str | None:
    """Return a name with the new number of its expert; None for a removed expert."""
    if name.startswith(PATTERN):
        if NUMBERED.search(name):
            raise ValueError(
                f"its {FIELD} names experts by the pattern {name[:80]!r}, which is not renumbered"
            )
        return name
    match = EXPERT.fullmatch(name)
    if match is None or int(match[2]) not in by_layer:
        return name
    kept, expert = by_layer[int(match[2])].tolist(), int(match[3])
    return f"{match[1]}{kept.index(expert)}{match[4]}" if expert in kept else None
