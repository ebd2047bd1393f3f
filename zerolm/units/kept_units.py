"""The part of a parent that a child keeps: layers, the units in each, and the residual stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.checkpoints import Checkpoint
from zerolm.families.config import ModelSizes
from zerolm.families.core_sizes import CoreSizes
from zerolm.units.stream.narrowing import Narrowing
from zerolm.units.within_layers import NAMES, UNITS, LayerSizes


@dataclass(frozen=True)
class Dimensions(CoreSizes):
    """The sizes of a parent that a cut refers to.

    ``axes`` maps the labels of the family's axes to the size along the axis (``heads``, ``kv_heads``,
    ``ffn``, or another that is not cut) and the number of elements for each. ``more`` are other sizes of the
    family by their labels.
    """

    axes: Mapping[str, tuple[str, int]] = field(default_factory=dict, compare=False)
    more: Mapping[str, int] = field(default_factory=dict, compare=False)

    def labelled(self, label: str) -> int:
        return self.more.get(label, super().labelled(label))

    def resized(self, sizes: LayerSizes) -> Dimensions:
        """Return the sizes of a network whose layers have these numbers of units."""
        counts, core = self.counts(sizes), {part.name for part in fields(CoreSizes)}
        changed: dict[str, Any] = {label: count for label, count in counts.items() if label in core}
        return replace(self, **changed, more={**self.more, **counts})

    @property
    def heads_per_group(self) -> int:
        return self.heads // self.kv_heads

    @property
    def units(self) -> LayerSizes:
        """The number of units of each kind in a whole layer."""
        return tuple(unit.count(self) for unit in UNITS)

    @property
    def wholes(self) -> dict[str, int]:
        """The number of units in a whole layer by their kind."""
        return dict(zip(NAMES, self.units, strict=True))

    def counts(self, sizes: LayerSizes) -> dict[str, int]:
        """Return the sizes of a configuration whose layers keep these numbers of units."""
        return {
            label: count * each
            for unit, count in zip(UNITS, sizes, strict=True)
            for label, each in unit.counted(self).items()
        }

    @cached_property
    def unit_sizes(self) -> dict[str, tuple[str, int]]:
        """The kind of units along each part of an axis, and the number of consecutive elements of a unit.

        ``q`` is heads x head size and ``kv`` KV heads x head size, both in KV groups; ``ffn`` is neurons.
        """
        sizes: dict[str, tuple[str, int]] = {}
        for unit in UNITS:
            counted = unit.counted(self)
            for label, (each, size) in {**unit.axes(self), **self.axes}.items():
                if each in counted:
                    sizes[label] = (unit.name, counted[each] * size)
        return sizes

    def parts(self, label: str) -> Iterator[AxisPart]:
        """Yield the consecutive parts of an axis; none where it has no units.

        ``q+kv+kv`` is the axis of a fused matrix; most axes have one part.
        """
        start, sizes, counts = 0, self.unit_sizes, self.wholes
        for name in label.split("+"):
            if name not in sizes:
                return
            kind, unit = sizes[name]
            part = AxisPart(kind, unit, start, unit * counts[kind])
            yield part
            start += part.length

    def length(self, label: str, sizes: LayerSizes) -> int:
        """Return the length of an axis in a layer with these numbers of units; 0 if it is not cut."""
        counts = dict(zip(NAMES, sizes, strict=True))
        return sum(part.unit * counts[part.kind] for part in self.parts(label))


def dimensions(checkpoint: Checkpoint) -> Dimensions:
    """Return the sizes that a cut refers to."""
    return dimensions_in(checkpoint.layout)


def dimensions_in(sizes: ModelSizes) -> Dimensions:
    """Return the sizes that a cut refers to, of a model with these ``sizes``."""
    core = {part.name: getattr(sizes, part.name) for part in fields(CoreSizes)}
    return Dimensions(**core, axes=sizes.units, more=sizes.sizes)


@dataclass(frozen=True, slots=True)
class AxisPart:
    """A part of an axis from ``start``: units of ``kind`` (``groups``, ``ffn``) of ``unit`` elements each."""

    kind: str
    unit: int
    start: int
    length: int


@dataclass(frozen=True, eq=False)
class LayerCut:
    """The kept units of the layer ``layer`` of the parent, by their kind: ascending numbers, (n,) each."""

    layer: int
    kept: Mapping[str, Ints]

    @classmethod
    def of(cls, layer: int, *kept: Ints) -> LayerCut:
        """Return the cut of a layer that keeps these units, in the order of ``UNITS``."""
        return cls(layer, dict(zip(NAMES, kept, strict=True)))

    def __getitem__(self, kind: str) -> Ints:
        """Return the kept units of a kind."""
        return self.kept[kind]

    @property
    def sizes(self) -> LayerSizes:
        """The number of kept units of each kind."""
        return tuple(len(self.kept[name]) for name in NAMES)

    def inside(self, first: LayerCut) -> LayerCut:
        """Return the cut that keeps these units of what ``first`` keeps."""
        return LayerCut(first.layer, {kind: first[kind][units] for kind, units in self.kept.items()})


@dataclass(frozen=True, eq=False)
class Cut:
    """The kept layers of a parent, in order, and the ``narrowing`` of the residual stream, if any."""

    parent: Dimensions
    layers: tuple[LayerCut, ...]
    narrowing: Narrowing | None = None

    @classmethod
    def whole(cls, parent: Dimensions) -> Cut:
        """Return the cut that keeps everything."""
        return cls.of(parent, range(parent.depth), lambda layer: parent.units)

    @classmethod
    def of(
        cls,
        parent: Dimensions,
        layers: Sequence[int],
        sizes: Callable[[int], LayerSizes],
        choose: Callable[[int, str, int], Ints] = lambda layer, kind, count: np.arange(count),
    ) -> Cut:
        """Return the cut of these layers to these sizes; ``choose`` takes layer, kind and count."""

        def layer_cut(layer: int) -> LayerCut:
            counts = zip(NAMES, sizes(layer), strict=True)
            return LayerCut(layer, {kind: choose(layer, kind, count) for kind, count in counts})

        return cls(parent, tuple(map(layer_cut, layers)))

    @property
    def sizes(self) -> dict[int, LayerSizes]:
        """The number of kept units of each kind by kept layer."""
        return {cut.layer: cut.sizes for cut in self.layers}

    @property
    def uniform(self) -> bool:
        """Whether all kept layers have the same sizes."""
        return len(set(self.sizes.values())) == 1

    @property
    def hidden(self) -> int:
        """The width of the residual stream."""
        return self.narrowing.width.hidden if self.narrowing else self.parent.hidden

    @property
    def is_whole(self) -> bool:
        """Whether nothing is cut."""
        is_narrower = self.hidden < self.parent.hidden or len(self.layers) < self.parent.depth
        return not is_narrower and set(self.sizes.values()) == {self.parent.units}

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is cut, and the stream has the parent's basis."""
        return self.is_whole and self.narrowing is None

    @property
    def largest(self) -> LayerSizes:
        """The largest number of units of each kind in any layer."""
        return tuple(map(max, zip(*self.sizes.values(), strict=True)))

    def after(self, first: Cut) -> Cut:
        """Return the cut of ``first``'s parent that keeps this part of the child of ``first``.

        Layers and units compose, the stream does not: it is this cut's.
        """
        layers = (first.layers[cut.layer] for cut in self.layers)
        both = zip(self.layers, layers, strict=True)
        return replace(self, parent=first.parent, layers=tuple(cut.inside(before) for cut, before in both))

    def resized(self, sizes: LayerSizes) -> Cut:
        """Return a cut of the same layers and stream with the first units of these numbers in each layer."""
        return replace(Cut.of(self.parent, list(self.sizes), lambda layer: sizes), narrowing=self.narrowing)

    def kept(self, cut: LayerCut, label: str) -> Ints | None:
        """Return the kept indices of an axis of a layer, ascending; None for an axis that is not cut."""
        parts = list(self.parent.parts(label))
        pieces = [part.start + spread(cut[part.kind], part.unit) for part in parts]
        return np.concatenate(pieces) if pieces else None

    def places(self, cut: LayerCut, label: str) -> Ints | None:
        """Return the positions of the kept indices of an axis in a layer of the ``largest`` sizes, ascending.

        None for an axis that is not cut.
        """
        padded = Cut(self.parent.resized(self.largest), ())
        return padded.kept(LayerCut.of(cut.layer, *map(np.arange, cut.sizes)), label)


def spread(units: Sequence[int] | Ints, size: int) -> Ints:
    """Return the indices of all elements of units of ``size`` consecutive elements, (units x size,)."""
    return (np.asarray(units, np.int64)[:, None] * size + np.arange(size)).ravel()


def best(importance: Sequence[float] | Floats, count: int) -> Ints:
    """Return the ``count`` most important units, ascending; ties go to the first."""
    order = np.argsort(-np.asarray(importance, np.float64), kind="stable")[:count]
    return np.sort(order)
