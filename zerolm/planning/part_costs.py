"""Costs of the parts of a checkpoint at each of their possible sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Ends, Ints, Layer, Matrix, Role, Shapes
from zerolm.checkpoints import Checkpoint
from zerolm.costs import COSTS, CostModel
from zerolm.families.config import TABLES, remembered, resized
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.stream.narrowing import Width
from zerolm.units.within_layers import LayerSizes

PARAMS: Final = COSTS.index("params")
WEIGHT_BYTES: Final = COSTS.index("weight_bytes")


class StoredCosts(CostModel):
    """Costs whose weight bytes are those of the stored tensors; ``bits`` has no effect."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Choices:
    """The numbers of units of each kind that a layer may keep, in the order of ``UNITS``, ascending.

    ``depth`` has the numbers of layers. ``by_layer`` lists the same as ``units`` for each layer where they
    differ; ``units`` then contains all of them. ``width`` is that of the residual stream, None for the
    parent's; ``required_layers`` are kept.
    """

    units: tuple[tuple[int, ...], ...]
    depth: tuple[int, ...]
    by_layer: tuple[tuple[tuple[int, ...], ...], ...] = ()
    width: Width | None = None
    required_layers: frozenset[int] = frozenset()

    @classmethod
    def of_cut(cls, cut: Cut) -> Choices:
        """Return the sizes that the layers of a cut have, its depth and its width."""
        units = tuple(tuple(sorted(set(counts))) for counts in zip(*cut.sizes.values(), strict=True))
        return cls(units, (len(cut.layers),), width=cut.narrowing.width if cut.narrowing else None)

    def of(self, layer: int) -> tuple[tuple[int, ...], ...]:
        """Return the numbers of units of each kind that this layer may keep."""
        return self.by_layer[layer] if self.by_layer else self.units

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of choices of each kind of units."""
        return tuple(map(len, self.units))


@dataclass(frozen=True, eq=False)
class LayerCosts:
    """Costs of the parts of a layer, (6,) each: of each number of ``units`` of each kind, and the ``rest``.

    In the order of ``COSTS``, int64; kinds are in the order of ``UNITS``.
    """

    units: tuple[dict[int, Ints], ...]
    rest: Ints

    def of(self, sizes: LayerSizes) -> Ints:
        """Return the costs of the layer with these numbers of units, (6,)."""
        return np.asarray(self.rest + sum(part[count] for part, count in zip(self.units, sizes, strict=True)))

    def table(self, choices: Sequence[Sequence[int]]) -> Ints:
        """Return the costs of the layer at all combinations of numbers of units, (n1, n2, ..., 6)."""
        pairs = zip(self.units, choices, strict=True)
        return np.asarray(self.rest + outer_sum([np.array([part[n] for n in each]) for part, each in pairs]))


@dataclass(frozen=True, eq=False)
class PartCosts:
    """Costs of the parts of a checkpoint: of each of the parent's ``layers``, and of all ``outside`` (6,).

    Layers of one kind and window are one object.
    """

    layers: tuple[LayerCosts, ...]
    outside: Ints

    @property
    def fixed(self) -> Ints:
        """The costs of all layers without removable units, plus those outside the layers, (6,)."""
        return np.asarray(self.outside + sum(layer.rest for layer in self.layers))

    def of(self, sizes: Mapping[int, LayerSizes]) -> Ints:
        """Return the costs of a network with these of the parent's layers at these sizes, (6,)."""
        total = self.outside.copy()
        for number, each in sizes.items():
            total += self.layers[number].of(each)
        return total


def outer_sum(parts: Sequence[NDArray[Any]], *, leading: int = 0) -> NDArray[Any]:
    """Return the sums of all combinations of entries of the parts, (..., n1, n2, ...) of (..., n) each.

    Parts share ``leading`` axes before that of their entries, and all axes behind it.
    """
    count, total = len(parts), np.zeros((), parts[0].dtype)
    for place, part in enumerate(parts):
        new = [*range(leading, leading + place), *range(leading + place + 1, leading + count)]
        total = total + np.expand_dims(part, tuple(new))
    return np.asarray(total)


def part_costs(checkpoint: Checkpoint, choices: Choices, costs: CostModel) -> PartCosts:
    """Return the costs of the parts of a checkpoint at each size, counted tensor by tensor.

    With ``StoredCosts`` all layers of a kind must be stored in the same types, else ``ValueError``.
    """
    layout, stored = checkpoint.layout, isinstance(costs, StoredCosts)
    costs = costs.of_task(checkpoint.family.task)
    if stored:
        _check_alike(checkpoint)
    kinds = list(zip(layout.kinds, layout.windows, strict=True))
    of_kind = {kind: _layer_costs(checkpoint, choices, costs, kinds.index(kind)) for kind in set(kinds)}
    size = sum(size for _, _, size in _outside(checkpoint, choices.width)) if stored else None
    outside = _with_bytes(costs.ends(_ends(checkpoint, choices.width)), size)
    return PartCosts(tuple(map(of_kind.__getitem__, kinds)), outside)


def _layer_costs(checkpoint: Checkpoint, choices: Choices, costs: CostModel, number: int) -> LayerCosts:
    layout, parent = checkpoint.layout, dimensions(checkpoint)
    names = layout.layer(number).values()
    width = choices.width or Width(layout.hidden, layout.tied)
    experts, active = (layout.sizes.get(label, 0) or 1 for label in ("experts", "active"))
    labels = {label for name in names for label in layout.slots[name].axes}
    of_ffn = {label for label in labels if any(part.kind == "ffn" for part in parent.parts(label))}

    def layer(sizes: LayerSizes) -> tuple[Layer, int]:
        matrices: list[Matrix] = []
        vectors = size = routed = routed_vectors = 0
        lengths = {label: parent.length(label, sizes) for label in labels} | {"hidden": width.hidden}
        for name in names:
            info, slot = checkpoint.tensors[name], layout.slots[name]
            shape = [lengths[label] or whole for label, whole in zip(slot.axes, info.shape, strict=True)]
            count = math.prod(shape)
            size += info.bytes_of(count)
            if not slot.is_matrix:
                vectors += count
                routed_vectors += count if slot.of_experts else 0
                continue
            role: Role = "attention" if of_ffn.isdisjoint(slot.axes) else "ffn"
            matrices.append(Matrix(role, count // shape[-1], shape[-1]))
            routed += count if slot.of_experts else 0
        kept = remembered(checkpoint.family, resized(layout, parent.counts(sizes)), layout.kinds[number])
        cut_layer = Layer(
            tuple(matrices),
            width.hidden,
            kept.products // 2,
            kept.token // 2,
            vectors,
            vectors,
            layout.windows[number],
            routed * (experts - active) // experts,
            kept.state,
            routed_vectors * (experts - active) // experts,
        )
        return cut_layer, size

    least = tuple(counts[0] for counts in choices.units)
    every = [
        (*least[:at], count, *least[at + 1 :]) for at, counts in enumerate(choices.units) for count in counts
    ]
    layers, sizes = zip(*map(layer, [least, *every]), strict=True)
    rows = costs.layers(Shapes.of(layers))
    if isinstance(costs, StoredCosts):
        rows[:, WEIGHT_BYTES] = sizes
    rest, more = rows[0], iter(rows[1:] - rows[0])
    return LayerCosts(tuple({count: next(more) for count in counts} for counts in choices.units), rest)


def _outside(checkpoint: Checkpoint, width: Width | None) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Yield role, shape and bytes of the tensors outside the layers."""
    layout = checkpoint.layout
    for role, name in layout.layer(None).items():
        info, axes = checkpoint.tensors[name], layout.slots[name].axes
        if width is None:
            yield role, info.shape, info.bytes_of(info.count)
            continue
        if role == "head" and layout.tied:
            continue  # stored next to the embedding, and not used
        lengths = zip(axes, info.shape, strict=True)
        shape = tuple(width.hidden if label == "hidden" else size for label, size in lengths)
        yield role, shape, info.bytes_of(math.prod(shape))
        if role == "embedding" and layout.tied and not width.tied:
            yield "head", shape, info.bytes_of(math.prod(shape))


def stored_bits(checkpoint: Checkpoint, costs: CostModel) -> list[int]:
    """Return the bits per weight: those of the cost model, else all bit widths of the stored tensors."""
    if not isinstance(costs, StoredCosts):
        return [costs.bits]
    return sorted({checkpoint.tensors[name].bits for name in checkpoint.layout.slots})


def _with_bytes(costs: Iterable[int], size: int | None) -> Ints:
    """Return costs (6,) with this size as the weight bytes, if any."""
    row = np.array(costs, np.int64)
    if size is not None:
        row[WEIGHT_BYTES] = size
    return row


def _check_alike(checkpoint: Checkpoint) -> None:
    """Raise ``ValueError`` where layers of one kind store the tensors of one role in several types."""
    types: dict[tuple[frozenset[str], str], str] = {}
    for layer, kinds in enumerate(checkpoint.layout.kinds):
        for role, name in checkpoint.layout.layer(layer).items():
            dtype, other = checkpoint.tensors[name].dtype, types.get((kinds, role))
            if other not in (None, dtype):
                raise ValueError(
                    f"tensor {name!r} is {dtype}, the same of other layers {other}: weights cannot be "
                    "counted as they are stored; give --bits"
                )
            types[kinds, role] = dtype


def _ends(checkpoint: Checkpoint, width: Width | None) -> Ends:
    tied = checkpoint.layout.tied if width is None else width.tied
    embedding = head = 0
    heads: list[Matrix] = []
    vectors = norms = 0
    for role, shape, _ in _outside(checkpoint, width):
        count = math.prod(shape)
        if role in TABLES:
            embedding += count
            head = count if role == "embedding" and tied else head
        elif len(shape) == 2 and not (role == "head" and tied):
            heads.append(Matrix("head", shape[0], shape[1]))
        elif len(shape) == 1:
            vectors += count
            norms += count if role.startswith("final_norm") else 0
    return Ends(embedding, tied_head=head, head_matrices=tuple(heads), vectors=vectors, body_vectors=norms)
