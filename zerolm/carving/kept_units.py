"""What is kept of a parent: layers, and in each its KV groups and FFN neurons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zerolm.architecture import Floats, Ints


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The sizes of a parent that a cut refers to.

    A KV group is one key/value head with the ``heads // kv_heads`` query heads that read it; without
    grouped queries it is one head.
    """

    depth: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int

    @property
    def heads_per_group(self) -> int:
        return self.heads // self.kv_heads


@dataclass(frozen=True, eq=False)
class LayerCut:
    """What is kept of the layer ``layer`` of the parent: ascending KV groups (g,) and FFN neurons (f,)."""

    layer: int
    groups: Ints
    ffn: Ints


@dataclass(frozen=True, eq=False)
class Cut:
    """What is kept of a parent: its kept layers in order."""

    parent: Dimensions
    layers: tuple[LayerCut, ...]

    @classmethod
    def whole(cls, parent: Dimensions) -> Cut:
        """Everything."""
        groups, ffn = np.arange(parent.kv_heads), np.arange(parent.ffn)
        return cls(parent, tuple(LayerCut(layer, groups, ffn) for layer in range(parent.depth)))

    @property
    def uniform(self) -> bool:
        """Whether all kept layers have as many groups and as many neurons."""
        return len({(len(cut.groups), len(cut.ffn)) for cut in self.layers}) == 1

    def kept(self, cut: LayerCut, axis: str) -> Ints | None:
        """The kept indices of an axis of a layer's tensors, ascending; None for an axis that stays whole.

        ``q`` are heads x head size (query rows, output columns), ``kv`` KV heads x head size, ``ffn``
        neurons.
        """
        if "+" in axis:
            sizes = {"q": self.parent.heads, "kv": self.parent.kv_heads}
            lengths = {label: count * self.parent.head_size for label, count in sizes.items()}
            lengths["ffn"], start, parts = self.parent.ffn, 0, []
            for label in axis.split("+"):
                indices = self.kept(cut, label)
                parts.append(start + (np.arange(lengths[label]) if indices is None else indices))
                start += lengths[label]
            return np.concatenate(parts)
        if axis == "ffn":
            return cut.ffn
        if axis == "kv":
            return spread(cut.groups, self.parent.head_size)
        if axis == "q":
            return spread(cut.groups, self.parent.heads_per_group * self.parent.head_size)
        return None


def spread(units: Sequence[int] | Ints, size: int) -> Ints:
    """The indices of all elements of units of ``size`` consecutive elements, (units x size,)."""
    return (np.asarray(units, np.int64)[:, None] * size + np.arange(size)).ravel()


def best(importance: Sequence[float] | Floats, count: int) -> Ints:
    """The ``count`` most important units, ascending; of equals the first."""
    order = np.argsort(-np.asarray(importance, np.float64), kind="stable")[:count]
    return np.sort(order)
