"""Costs of the parts of a checkpoint at each of their possible sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Ends, Ints, Layer, Matrix, Shapes
from zerolm.checkpoints import Checkpoint
from zerolm.costs import COSTS, CostModel
from zerolm.families.config import TABLES, remembered, resized
from zerolm.units.kept_units import Dimensions, dimensions
from zerolm.units.stream.narrowing import Width

PARAMS: Final = COSTS.index("params")
WEIGHT_BYTES: Final = COSTS.index("weight_bytes")


class StoredCosts(CostModel):
    """Costs whose weight bytes are those of the stored tensors; ``bits`` has no effect."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Choices:
    """The numbers of KV groups and of neurons that a layer may keep, and of layers, ascending.

    ``by_layer`` lists (groups, neurons) for each layer where they differ; the other fields contain all of
    them. ``width`` is that of the residual stream, None for the parent's; ``required_layers`` are kept.
    """

    groups: tuple[int, ...]
    ffn: tuple[int, ...]
    depth: tuple[int, ...]
    by_layer: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    width: Width | None = None
    required_layers: frozenset[int] = frozenset()

    def of(self, layer: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the numbers of KV groups and of neurons that this layer may keep."""
        return self.by_layer[layer] if self.by_layer else (self.groups, self.ffn)


@dataclass(frozen=True, eq=False)
class LayerCosts:
    """Costs of the parts of a layer, (6,) each: ``groups[g]`` and ``ffn[f]`` for each size, and the ``rest``.

    In the order of ``COSTS``, int64.
    """

    groups: dict[int, Ints]
    ffn: dict[int, Ints]
    rest: Ints


@dataclass(frozen=True, eq=False)
class PartCosts:
    """Costs of the parts of a checkpoint: of each of the parent's ``layers``, and of all ``outside`` (6,).

    Layers of one kind are one object.
    """

    layers: tuple[LayerCosts, ...]
    outside: Ints

    @property
    def alike(self) -> LayerCosts | None:
        """The costs common to all layers; None where they differ."""
        return self.layers[0] if len({id(layer) for layer in self.layers}) == 1 else None

    @property
    def fixed(self) -> Ints:
        """The costs of all layers without removable units, plus those outside the layers, (6,)."""
        return np.asarray(self.outside + sum(layer.rest for layer in self.layers))

    def of(self, sizes: Mapping[int, tuple[int, int]]) -> Ints:
        """Return the costs of a network with these of the parent's layers, (groups, neurons) each, (6,)."""
        total = self.outside.copy()
        for number, (groups, ffn) in sizes.items():
            layer = self.layers[number]
            total += layer.rest + layer.groups[groups] + layer.ffn[ffn]
        return total


def part_costs(checkpoint: Checkpoint, choices: Choices, costs: CostModel) -> PartCosts:
    """Return the costs of the parts of a checkpoint at each size, counted tensor by tensor.

    With ``StoredCosts`` all layers of a kind must be stored in the same types, else ``ValueError``. Where the
    attention windows of layers differ, all are counted without a window.
    """
    layout, stored = checkpoint.layout, isinstance(costs, StoredCosts)
    if stored:
        _check_alike(checkpoint)
    firsts = {kinds: layout.kinds.index(kinds) for kinds in layout.kinds}
    by_kind = {kinds: _layer_costs(checkpoint, choices, costs, first) for kinds, first in firsts.items()}
    size = _stored_outside(checkpoint, choices.width) if stored else None
    outside = _with_bytes(costs.ends(_ends(checkpoint, choices.width)), size)
    return PartCosts(tuple(by_kind[kinds] for kinds in layout.kinds), outside)


def _layer_costs(checkpoint: Checkpoint, choices: Choices, costs: CostModel, number: int) -> LayerCosts:
    """Return the costs of the parts of one layer of the parent, tensor by tensor."""
    layout, parent = checkpoint.layout, dimensions(checkpoint)
    names, window = layout.layer(number).values(), common_window(checkpoint)
    width = choices.width or Width(layout.hidden, layout.tied)
    stored = isinstance(costs, StoredCosts)
    experts, active = (layout.sizes.get(label, 0) or 1 for label in ("experts", "active"))

    def layer(groups: int, ffn: int) -> Ints:
        matrices: list[Matrix] = []
        vectors = size = routed = routed_vectors = 0
        for name in names:
            info, slot = checkpoint.tensors[name], layout.slots[name]
            lengths = zip(slot.axes, info.shape, strict=True)
            shape = [_length(parent, label, groups, ffn, width) or whole for label, whole in lengths]
            count = int(np.prod(shape))
            size += info.bytes_of(count)
            if not slot.is_matrix:
                vectors += count
                routed_vectors += count if slot.of_experts else 0
                continue
            kinds = {part.kind for label in slot.axes for part in parent.parts(label)}
            matrices.append(Matrix("ffn" if "ffn" in kinds else "attention", count // shape[-1], shape[-1]))
            routed += count if slot.of_experts else 0
        kept = remembered(checkpoint.family, resized(layout, groups, ffn), layout.kinds[number])
        cut_layer = Layer(
            tuple(matrices),
            width.hidden,
            kept.products // 2,
            kept.token // 2,
            vectors,
            vectors,
            window,
            routed * (experts - active) // experts,
            kept.state,
            routed_vectors * (experts - active) // experts,
        )
        return _with_bytes(costs.layers(Shapes.of([cut_layer]))[0], size if stored else None)

    least_g, least_f = choices.groups[0], choices.ffn[0]
    rest = layer(least_g, least_f)
    return LayerCosts(
        {groups: layer(groups, least_f) - rest for groups in choices.groups},
        {ffn: layer(least_g, ffn) - rest for ffn in choices.ffn},
        rest,
    )


def _length(parent: Dimensions, label: str, groups: int, ffn: int, width: Width) -> int:
    """Return the length of an axis with these counts of ``groups`` and neurons; 0 for one that is not cut."""
    return width.hidden if label == "hidden" else parent.length(label, groups, ffn)


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


def _stored_outside(checkpoint: Checkpoint, width: Width | None) -> int:
    return sum(size for _, _, size in _outside(checkpoint, width))


def common_window(checkpoint: Checkpoint) -> int:
    """Return the largest number of tokens that each layer attends to; 0 for all, also where layers differ."""
    windows = set(checkpoint.layout.windows)
    return windows.pop() if len(windows) == 1 else 0


def window_note(checkpoint: Checkpoint, costs: CostModel) -> str:
    """Return a note on windows that are not counted because layers differ; empty where none is shorter."""
    windows = set(checkpoint.layout.windows)
    met = [window for window in windows if 0 < window < costs.context]
    if not met or len(windows) == 1:
        return ""
    return f"KV bytes and MACs are counted without the windows ({min(met)} tokens) of some layers"


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
    """Return the tensors outside the layers."""
    tied = checkpoint.layout.tied if width is None else width.tied
    embedding = head = 0
    heads: list[Matrix] = []
    vectors = 0
    for role, shape, _ in _outside(checkpoint, width):
        count = math.prod(shape)
        if role in TABLES:
            embedding += count
            head = count if role == "embedding" and tied else head
        elif len(shape) == 2 and not (role == "head" and tied):
            heads.append(Matrix("head", shape[0], shape[1]))
        elif len(shape) == 1:
            vectors += count
    return Ends(embedding, tied_head=head, head_matrices=tuple(heads), vectors=vectors)
