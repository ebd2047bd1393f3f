"""The tensors of a child: how each is made from one of its parent's, some rows at a time.

It is new (repaired, or trained), or the product of the parent's with a map of a narrower stream, or rows and
columns of the parent's. Only ``ChildTensor.blocks`` decides which; the writers of all formats use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Ints
from zerolm.checkpoints import Checkpoint, Slot, Span, TensorInfo, sliced
from zerolm.checkpoints.dtypes import RAW_TYPES, narrowed
from zerolm.checkpoints.writer import Chunk
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.stream.maps import StreamMaps, Values, stored_gain


class NewWeights(Protocol):
    """Weights that replace the parent's, in the shapes of the cut."""

    @property
    def arrays(self) -> Mapping[tuple[int, str], Values]:
        """Return by layer and norm the fitted maps of a narrower stream, which replace those of its basis."""

    def named(self, name: Callable[[str, int], str | None]) -> Mapping[str, Values]:
        """Return new values by the parent's tensor names, which ``name(role, layer)`` returns."""


@dataclass(frozen=True, eq=False)
class Child:
    """A child to be written: its parent, the cut, and the new weights."""

    parent: Checkpoint
    cut: Cut
    weights: NewWeights | None = None

    @cached_property
    def new(self) -> Mapping[str, Values]:
        """The new values by the parent's tensor names."""
        return self.weights.named(self.parent.layout.name) if self.weights else {}

    @cached_property
    def maps(self) -> StreamMaps | None:
        """The maps of a narrower stream; None where the stream is the parent's."""
        if self.cut.narrowing is None:
            return None
        fitted = self.weights.arrays if self.weights else {}
        gain = partial(stored_gain, self.parent)
        return StreamMaps(self.cut.narrowing, self.parent.layout.depth, gain, fitted, self.parent.family)

    def tensors(self) -> Iterator[ChildTensor]:
        """Yield the child's tensors in the order of the parent's files, a new head last.

        Raises ``ValueError`` where the shape of a new weight does not match the cut.
        """
        layout, kept = self.parent.layout, {layer.layer: layer for layer in self.cut.layers}
        for name in self.parent.tensors:
            slot = layout.slots.get(name)
            if name in layout.carried:
                yield ChildTensor(self, name, "carried", None)
            if slot is None or (slot.layer is not None and slot.layer not in kept):
                continue
            if self.maps and slot.role == "head" and layout.tied:
                continue  # stored next to the embedding, and not used
            yield ChildTensor(self, name, slot.role, None if slot.layer is None else kept[slot.layer])
        embedding = layout.name("embedding")
        if self.maps and embedding and layout.tied and not self.maps.narrowing.width.tied:
            yield ChildTensor(self, embedding, "head", None)


@dataclass(frozen=True, eq=False)
class ChildTensor:
    """A tensor of a child, made from the parent's tensor ``source``; ``kept`` is None outside the layers.

    ``role`` is that of the source, except for a new head that is made from the embedding.
    """

    child: Child
    source: str
    role: str
    kept: LayerCut | None

    def __post_init__(self) -> None:
        new = self.child.new.get(self.source)
        if new is not None and new.shape != self.shape:
            raise ValueError(f"the repair of {self.source!r} has shape {new.shape}, but {self.shape} is left")

    @property
    def info(self) -> TensorInfo:
        """The parent's tensor."""
        return self.child.parent.tensors[self.source]

    @property
    def slot(self) -> Slot:
        """The slot of the parent's tensor."""
        carried = Slot(None, "carried", ("",) * len(self.info.shape))
        return self.child.parent.layout.slots.get(self.source, carried)

    @property
    def is_made_anew(self) -> bool:
        """Whether it is a head of the child's own, made from the parent's embedding."""
        return self.role != self.slot.role

    @property
    def is_copied(self) -> bool:
        """Whether it is stored byte for byte as the parent's."""
        is_new = self.is_made_anew or self.source in self.child.new
        turns = self.child.maps is not None and "hidden" in self.slot.axes
        return not (is_new or turns or self.indices) and self.padded_shape == self.info.shape

    @cached_property
    def indices(self) -> dict[int, Ints]:
        """The kept indices of the parent's tensor by axis, for axes that are cut."""
        if self.kept is None:
            return {}
        kept = {axis: self.child.cut.kept(self.kept, label) for axis, label in enumerate(self.slot.axes)}
        return {axis: x for axis, x in kept.items() if x is not None and len(x) < self.info.shape[axis]}

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape after the cut."""
        return tuple(
            self.child.cut.hidden if label == "hidden" else len(self.indices.get(axis, range(size)))
            for axis, (label, size) in enumerate(zip(self.slot.axes, self.info.shape, strict=True))
        )

    @property
    def padded_shape(self) -> tuple[int, ...]:
        """The shape padded with zeros to the ``largest`` sizes of any layer."""
        if self.kept is None:
            return self.shape
        cut, sizes = self.child.cut, zip(self.slot.axes, self.shape, strict=True)
        return tuple(cut.parent.length(label, cut.largest) or size for label, size in sizes)

    def blocks(self) -> Iterator[Chunk]:
        """Yield the tensor as stored, some rows at a time."""
        child, dtype = self.child, self.info.dtype
        if self.source in child.new:
            yield self._narrowed(child.new[self.source])
        elif child.maps and "hidden" in self.slot.axes:
            turned = self.slot.transposed
            for block in child.maps.blocks(self.role, self.slot.layer, self._taken(), dtype, turned=turned):
                yield self._narrowed(block)
        else:
            yield from sliced(self.info, self.indices)

    def of_expert(self, expert: int) -> NDArray[Any]:
        """Return one expert of a tensor of all, as stored, (1, ...); nothing but the stream is cut."""
        raw = np.asarray(self.child.parent.raw(self.source)[expert])[None]
        if self.child.maps is None or "hidden" not in self.slot.axes:
            return raw
        turned, dtype = self.slot.transposed, self.info.dtype
        return self._narrowed(self.child.maps.whole(self.role, self.slot.layer, raw, dtype, turned=turned))

    def _narrowed(self, values: NDArray[np.floating[Any]]) -> NDArray[Any]:
        """Return new values in the stored dtype; ``ValueError`` names the tensor if they exceed its range."""
        remedy = "give --repair none, or save the parent in bfloat16 first"
        if not np.isfinite(values).all():
            raise ValueError(
                f"the repaired {self.source!r} is not finite: its inputs are too large; {remedy}"
            )
        try:
            return narrowed(values, self.info.dtype)
        except ValueError as error:
            raise ValueError(f"the repaired {self.source!r} cannot be stored: {error}; {remedy}") from None

    def _taken(self) -> NDArray[Any]:
        """Return the kept part of the parent's tensor, raw; memory-mapped where all is kept."""
        raw: NDArray[Any] = np.asarray(self.child.parent.raw(self.source))
        for axis, indices in self.indices.items():
            raw = raw.take(indices, axis=axis)
        return raw

    def array(self) -> NDArray[Any]:
        """Return the tensor as stored, in memory."""
        values = np.empty(self.shape, RAW_TYPES[self.info.dtype])
        content, start = values.reshape(-1).view(np.uint8), 0
        for block in self.blocks():
            if isinstance(block, Span):
                part = np.fromfile(block.file, np.uint8, block.end - block.start, offset=block.start)
            else:
                part = np.ascontiguousarray(block).reshape(-1).view(np.uint8)
            content[start : start + len(part)] = part
            start += len(part)
        return values

    def padded_blocks(self) -> Iterator[Chunk]:
        """Yield the tensor padded with zeros to the ``largest`` sizes, by part where a matrix is fused."""
        if self.kept is None or self.padded_shape == self.shape:
            yield from self.blocks()
            return
        padded = np.zeros(self.padded_shape, RAW_TYPES[self.info.dtype])
        places = (self.child.cut.places(self.kept, label) for label in self.slot.axes)
        sizes = zip(places, self.shape, strict=True)
        padded[np.ix_(*(np.arange(size) if place is None else place for place, size in sizes))] = self.array()
        yield padded
