"""The part of a parent that a child keeps: layers, the KV groups and FFN neurons in each, and the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.checkpoints import Checkpoint
from zerolm.families.config import CoreSizes, ModelSizes
from zerolm.units.stream.narrowing import Narrowing


@dataclass(frozen=True)
class Dimensions(CoreSizes):
    """The sizes of a parent that a cut refers to.

    A KV group is one key/value head with the ``heads // kv_heads`` query heads that use it; without grouped
    queries it is one head. ``axes`` maps the labels of the family's axes to the kind of thing along the axis
    (``heads``, ``kv_heads``, ``ffn``, or another that is not cut) and its number of elements.
    """

    axes: Mapping[str, tuple[str, int]] = field(default_factory=dict, compare=False)

    @property
    def heads_per_group(self) -> int:
        return self.heads // self.kv_heads

    @property
    def unit_sizes(self) -> dict[str, tuple[str, int]]:
        """The kind of units along each part of an axis, and the number of consecutive elements of a unit.

        ``q`` is heads x head size and ``kv`` KV heads x head size, both in KV groups; ``ffn`` is neurons.
        """
        sizes = {"q": ("heads", self.head_size), "kv": ("kv_heads", self.head_size), "ffn": ("ffn", 1)}
        times = {"heads": ("groups", self.heads_per_group), "kv_heads": ("groups", 1), "ffn": ("ffn", 1)}
        return {
            label: (times[each][0], times[each][1] * size)
            for label, (each, size) in (sizes | dict(self.axes)).items()
            if each in times
        }

    def parts(self, label: str) -> Iterator[AxisPart]:
        """Yield the consecutive parts of an axis; none where it has no units.

        ``q+kv+kv`` is the axis of a fused matrix; most axes have one part.
        """
        start, units = 0, self.unit_sizes
        for name in label.split("+"):
            if name not in units:
                return
            kind, unit = units[name]
            part = AxisPart(kind, unit, start, unit * (self.ffn if kind == "ffn" else self.kv_heads))
            yield part
            start += part.length

    def length(self, label: str, groups: int, ffn: int) -> int:
        """Return the length of an axis with these counts of ``groups`` and neurons; 0 if it is not cut."""
        return sum(part.unit * (ffn if part.kind == "ffn" else groups) for part in self.parts(label))


def dimensions(checkpoint: Checkpoint) -> Dimensions:
    """Return the sizes that a cut refers to."""
    return dimensions_in(checkpoint.layout)


def dimensions_in(sizes: ModelSizes) -> Dimensions:
    """Return the sizes that a cut refers to, of a model with these ``sizes``."""
    core = {part.name: getattr(sizes, part.name) for part in fields(CoreSizes)}
    return Dimensions(**core, axes=sizes.units)


@dataclass(frozen=True, slots=True)
class AxisPart:
    """A part of an axis from ``start``: units of ``kind`` (``groups``, ``ffn``) of ``unit`` elements each."""

    kind: str
    unit: int
    start: int
    length: int


@dataclass(frozen=True, eq=False)
class LayerCut:
    """The kept units of the layer ``layer`` of the parent: ascending KV groups (g,) and FFN neurons (f,)."""

    layer: int
    groups: Ints
    ffn: Ints

    def units(self, kind: str) -> Ints:
        """Return the kept ``groups`` or ``ffn``."""
        return self.groups if kind == "groups" else self.ffn


@dataclass(frozen=True, eq=False)
class Cut:
    """The kept layers of a parent, in order, and the ``narrowing`` of the residual stream, if any."""

    parent: Dimensions
    layers: tuple[LayerCut, ...]
    narrowing: Narrowing | None = None

    @classmethod
    def whole(cls, parent: Dimensions) -> Cut:
        """Return the cut that keeps everything."""
        return cls.of(parent, range(parent.depth), lambda layer: (parent.kv_heads, parent.ffn))

    @classmethod
    def of(
        cls,
        parent: Dimensions,
        layers: Sequence[int],
        sizes: Callable[[int], tuple[int, int]],
        choose: Callable[[int, str, int], Ints] = lambda layer, kind, count: np.arange(count),
    ) -> Cut:
        """Return the cut of these layers to sizes (groups, neurons); ``choose`` takes layer, kind, count."""

        def layer_cut(layer: int) -> LayerCut:
            groups, ffn = sizes(layer)
            return LayerCut(layer, choose(layer, "groups", groups), choose(layer, "ffn", ffn))

        return cls(parent, tuple(map(layer_cut, layers)))

    @property
    def uniform(self) -> bool:
        """Whether all kept layers have the same number of groups and of neurons."""
        return len({(len(cut.groups), len(cut.ffn)) for cut in self.layers}) == 1

    @property
    def hidden(self) -> int:
        """The width of the residual stream."""
        return self.narrowing.width.hidden if self.narrowing else self.parent.hidden

    @property
    def is_whole(self) -> bool:
        """Whether nothing is cut."""
        return (
            self.hidden == self.parent.hidden
            and len(self.layers) == self.parent.depth
            and all(
                len(cut.groups) == self.parent.kv_heads and len(cut.ffn) == self.parent.ffn
                for cut in self.layers
            )
        )

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is cut, and the stream has the parent's basis."""
        return self.is_whole and self.narrowing is None

    @property
    def largest(self) -> tuple[int, int]:
        """The largest number of KV groups and the largest number of neurons in any layer."""
        return max(len(cut.groups) for cut in self.layers), max(len(cut.ffn) for cut in self.layers)

    def padded(self) -> Cut:
        """Return a cut of the same layers that all have the ``largest`` sizes."""
        layers = {cut.layer: self.largest for cut in self.layers}
        return replace(Cut.of(self.parent, list(layers), layers.__getitem__), narrowing=self.narrowing)

    def kept(self, cut: LayerCut, label: str) -> Ints | None:
        """Return the kept indices of an axis of a layer, ascending; None for an axis that is not cut."""
        parts = list(self.parent.parts(label))
        pieces = [part.start + spread(cut.units(part.kind), part.unit) for part in parts]
        return np.concatenate(pieces) if pieces else None

    def places(self, cut: LayerCut, label: str) -> Ints | None:
        """Return the positions of the kept indices of an axis in a layer of the ``largest`` sizes, ascending.

        None for an axis that is not cut.
        """
        padded = Cut(_resized(self.parent, *self.largest), ())
        first = LayerCut(cut.layer, np.arange(len(cut.groups)), np.arange(len(cut.ffn)))
        return padded.kept(first, label)


def _resized(parent: Dimensions, groups: int, ffn: int) -> Dimensions:
    heads = groups * parent.heads_per_group
    return replace(parent, heads=heads, kv_heads=groups, ffn=ffn)


def spread(units: Sequence[int] | Ints, size: int) -> Ints:
    """Return the indices of all elements of units of ``size`` consecutive elements, (units x size,)."""
    return (np.asarray(units, np.int64)[:, None] * size + np.arange(size)).ravel()


def best(importance: Sequence[float] | Floats, count: int) -> Ints:
    """Return the ``count`` most important units, ascending; ties go to the first."""
    order = np.argsort(-np.asarray(importance, np.float64), kind="stable")[:count]
    return np.sort(order)
