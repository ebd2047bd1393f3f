"""What the KV groups and neurons of a layer are worth, from the weights alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.carving.kept_units import Dimensions, best
from zerolm.checkpoints import Checkpoint, Ledger, Sums

WEIGHTS_ONLY: Final = (
    "capacity",
    "zerolm",
    "max_weight",
    "max_weight_strict",
    "magnitude",
    "random",
    "prefix",
)
WITH_TOKENS: Final = ("amp", "output_energy")
REPAIRS: Final = ("none", "bias", "least-squares")
ATTENTION: Final = ("q", "k", "v", "o")
FFN: Final = ("gate", "up", "down")


@dataclass(frozen=True, eq=False)
class Share:
    """One matrix of a layer as the units (KV groups or neurons) that share it, (units,) each.

    ``unit_side`` is how many rows or columns a unit owns, ``other_side`` the length of the other axis.
    """

    role: str
    squares: Floats
    absolute: Floats
    largest: Floats
    smallest: Floats
    unit_side: int
    other_side: int

    @property
    def denominator(self) -> int:
        """min(rows, cols) of the parent's matrix."""
        return min(len(self.squares) * self.unit_side, self.other_side)


def dimensions(checkpoint: Checkpoint) -> Dimensions:
    """The sizes that a cut refers to."""
    layout = checkpoint.layout
    return Dimensions(
        layout.depth, layout.hidden, layout.heads, layout.kv_heads, layout.head_size, layout.ffn
    )


def shares(checkpoint: Checkpoint, ledger: Ledger, layer: int, kind: str) -> Iterator[Share]:
    """The matrices of a layer that its ``groups`` or its ``ffn`` neurons share."""
    layout, sizes = checkpoint.layout, dimensions(checkpoint)
    roles = ATTENTION if kind == "groups" else FFN
    sides = {"q": sizes.heads_per_group * sizes.head_size, "kv": sizes.head_size, "ffn": 1}
    for role in roles:
        name = layout.name(role, layer)
        if name is None:
            continue
        axes = layout.slots[name].axes
        axis = next(i for i, label in enumerate(axes) if label in sides)
        sums = ledger.rows(name) if axis == 0 else ledger.cols(name)
        side = sides[axes[axis]]
        other = checkpoint.tensors[name].shape[1 - axis]
        yield _share(role, sums, side, other)


def _share(role: str, sums: Sums, side: int, other: int) -> Share:
    return Share(
        role,
        sums.squares.reshape(-1, side).sum(axis=1),
        sums.absolute.reshape(-1, side).sum(axis=1),
        sums.largest.reshape(-1, side).max(axis=1),
        sums.smallest.reshape(-1, side).min(axis=1),
        side,
        other,
    )


class Criterion(ABC):
    """Chooses ``count`` units of a layer, and says what the choice is worth: more is better."""

    @abstractmethod
    def choose(self, layer: int, kind: str, count: int) -> Ints:
        """The kept units, ascending, (count,); ``kind`` is ``groups`` or ``ffn``."""

    @abstractmethod
    def worth(self, layer: int, kind: str, count: int) -> float:
        """The value of what ``choose`` keeps, comparable between layers and kinds."""

    def without(self, layer: int) -> float | None:
        """What a network without the layer is worth beside the others; None where this cannot be told."""
        return None


@dataclass(frozen=True)
class Indifferent(Criterion):
    """Keeps the first units and values nothing but layers, which may go where ``gone`` is their loss."""

    gone: float | None

    def choose(self, layer: int, kind: str, count: int) -> Ints:
        return np.arange(count)

    def worth(self, layer: int, kind: str, count: int) -> float:
        return 0.0

    def without(self, layer: int) -> float | None:
        return self.gone


@dataclass(frozen=True, eq=False)
class Additive(Criterion):
    """A criterion that adds up: ``importance[kind][layer]`` is (units,), not negative."""

    importance: dict[str, list[Floats]]
    chosen_by: dict[str, list[Floats]] | None = None
    """What units are chosen by, where that is another number than their worth."""

    def choose(self, layer: int, kind: str, count: int) -> Ints:
        return best((self.chosen_by or self.importance)[kind][layer], count)

    def worth(self, layer: int, kind: str, count: int) -> float:
        return float(self._sums[kind][layer][count])

    @cached_property
    def _sums(self) -> dict[str, list[Floats]]:
        """What the first 0, 1, 2 ... chosen units are worth together."""
        chosen_by = self.chosen_by or self.importance
        return {
            kind: [
                np.concatenate([[0.0], np.cumsum(values[np.argsort(-by, kind="stable")])])
                for values, by in zip(layers, chosen_by[kind], strict=True)
            ]
            for kind, layers in self.importance.items()
        }


@dataclass(frozen=True, eq=False)
class Literal(Criterion):
    """Equation 3 of ZeroLM on what is kept: ||W||_F^2 / min(rows, cols) of the cut matrices.

    Where the cut side is already the shorter one, dropping below-average units raises it.
    """

    parts: dict[str, list[list[Share]]]

    def choose(self, layer: int, kind: str, count: int) -> Ints:
        weighed = [share.squares / _cut_denominator(share, count) for share in self.parts[kind][layer]]
        return best(np.sum(weighed, axis=0), count)

    def worth(self, layer: int, kind: str, count: int) -> float:
        kept = self.choose(layer, kind, count)
        return sum(
            float(share.squares[kept].sum()) / _cut_denominator(share, count)
            for share in self.parts[kind][layer]
        )


def _cut_denominator(share: Share, count: int) -> int:
    return min(count * share.unit_side, share.other_side)


def criterion_of(name: str, checkpoint: Checkpoint, ledger: Ledger, *, seed: int = 0) -> Criterion:
    """A criterion that needs nothing but weights.

    ``capacity``: kept ||W||_F^2 over min(rows, cols) of the parent, a plain sum over matrices, monotone.
    ``zerolm``: equation 3 (arXiv 2503.18646) literally. ``max_weight``: neurons by max + |min| of their gate
    and up rows (arXiv 2512.22671, as released), ``max_weight_strict`` by max |w| (as its text has it), heads
    by capacity. ``magnitude``: sum of |w|. ``random``
    and ``prefix`` know nothing. Raises ``ValueError`` for another name.
    """
    depth = checkpoint.layout.depth
    kinds = ("groups", "ffn")
    parts = {
        kind: [list(shares(checkpoint, ledger, layer, kind)) for layer in range(depth)] for kind in kinds
    }
    capacity = _summed(parts, lambda share: share.squares / share.denominator)
    if name == "capacity":
        return Additive(capacity)
    if name == "zerolm":
        return Literal(parts)
    if name == "magnitude":
        return Additive(_summed(parts, lambda share: share.absolute))
    if name in ("max_weight", "max_weight_strict"):
        reach = _reach if name == "max_weight" else _farthest
        rows = ([share for share in layer if share.role != "down"] for layer in parts["ffn"])
        chosen = {**capacity, "ffn": [reach(layer) for layer in rows]}
        return Additive(capacity, chosen)
    if name in ("random", "prefix"):
        generator = np.random.default_rng(seed)
        chosen = {
            kind: [
                generator.random(len(values)) if name == "random" else -np.arange(len(values), dtype=float)
                for values in capacity[kind]
            ]
            for kind in kinds
        }
        return Additive(capacity, chosen)
    raise ValueError(f"criterion {name!r} is not known; from weights there are {', '.join(WEIGHTS_ONLY)}")


def _summed(parts: dict[str, list[list[Share]]], value: Callable[[Share], Floats]) -> dict[str, list[Floats]]:
    """The value of each unit, summed over the matrices of its layer."""
    return {
        kind: [np.sum([value(share) for share in layer], axis=0) for layer in layers]
        for kind, layers in parts.items()
    }


def _reach(layer: list[Share]) -> Floats:
    """max + |min| of each neuron's rows, summed over the matrices."""
    return np.asarray(sum(share.largest + np.abs(share.smallest) for share in layer), np.float64)


def _farthest(layer: list[Share]) -> Floats:
    """max |w| of each neuron's rows, summed over the matrices."""
    return np.asarray(sum(np.maximum(share.largest, -share.smallest) for share in layer), np.float64)
