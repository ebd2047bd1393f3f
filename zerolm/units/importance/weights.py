"""Importance of the KV groups and neurons of a layer, from the weights alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zerolm.architecture import Floats
from zerolm.checkpoints import Checkpoint, Ledger, Sums
from zerolm.units.importance.criterion import Additive, Criterion
from zerolm.units.kept_units import AxisPart, dimensions


@dataclass(frozen=True, eq=False)
class Share:
    """Statistics of one matrix of a layer by unit (KV group or neuron), (units,) each.

    Of a fused matrix it is the part with the ``role``. ``unit_side`` is the number of rows or columns of a
    unit, ``other_side`` the length of the other axis.
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


Shares = dict[str, list[list[Share]]]
"""By kind (``groups`` or ``ffn``) and layer: the matrices with an axis of such units."""


def shares(checkpoint: Checkpoint, ledger: Ledger, layer: int, kind: str) -> Iterator[Share]:
    """Yield the shares of a layer's matrices that have an axis of ``groups`` or of ``ffn`` neurons."""
    layout, sizes = checkpoint.layout, dimensions(checkpoint)
    for name in layout.layer(layer).values():
        slot = layout.slots[name]
        for axis, label in enumerate(slot.axes if len(slot.axes) == 2 else ()):
            parts = list(sizes.parts(label))
            roles = slot.role.split("+") if "+" in label else [slot.role]
            for role, part in zip(roles if parts else (), parts, strict=True):
                if part.kind == kind:
                    sums = ledger.rows(name) if axis == 0 else ledger.cols(name)
                    yield _share(role, sums, part, checkpoint.tensors[name].shape[1 - axis])


def _share(role: str, sums: Sums, part: AxisPart, other_side: int) -> Share:
    def units(column: NDArray[np.floating[Any]]) -> Floats:
        return np.asarray(column[part.start : part.start + part.length].reshape(-1, part.unit), np.float64)

    return Share(
        role,
        units(sums.squares).sum(axis=1),
        units(sums.absolute).sum(axis=1),
        units(sums.largest).max(axis=1),
        units(sums.smallest).min(axis=1),
        part.unit,
        other_side,
    )


def all_shares(checkpoint: Checkpoint, ledger: Ledger) -> Shares:
    """Return the shares of all layers; a layer without such units gets the usual number of zero weight."""
    layers, every = range(checkpoint.layout.depth), Shares()
    for kind, count in dimensions(checkpoint).wholes.items():
        zeros = np.zeros(count)
        weightless = Share("none", zeros, zeros, zeros, zeros, 1, count)
        every[kind] = [list(shares(checkpoint, ledger, layer, kind)) or [weightless] for layer in layers]
    return every


def capacity(parts: Shares, seed: int) -> Criterion:
    """Return the criterion ||W||_F^2 of kept units over the parent's min(rows, cols), summed over matrices.

    It is monotone in the number of kept units.
    """
    return Additive(_capacities(parts))


def magnitude(parts: Shares, seed: int) -> Criterion:
    """Return the criterion sum of |w|."""
    return Additive(_summed(parts, lambda share: share.absolute))


def max_weight(parts: Shares, seed: int) -> Criterion:
    """Return the criterion max + |min| of a neuron's gate and up rows (arXiv 2512.22671, as released).

    It chooses heads by capacity.
    """
    rows = [[share for share in layer if share.role != "down"] for layer in parts["ffn"]]
    values = _summed({"ffn": rows}, lambda share: share.largest + np.abs(share.smallest))
    scores = _capacities(parts)
    return Additive(scores, {**scores, **values})


def random(parts: Shares, seed: int) -> Criterion:
    """Return a criterion that samples units at random."""
    generator = np.random.default_rng(seed)
    return _ordered(parts, lambda count: generator.random(count))


def prefix(parts: Shares, seed: int) -> Criterion:
    """Return a criterion that keeps the first units."""
    return _ordered(parts, lambda count: -np.arange(count, dtype=float))


def _ordered(parts: Shares, order: Callable[[int], Floats]) -> Criterion:
    scores = _capacities(parts)
    return Additive(scores, {kind: [order(len(x)) for x in layers] for kind, layers in scores.items()})


def _capacities(parts: Shares) -> dict[str, list[Floats]]:
    return _summed(parts, lambda share: share.squares / share.denominator)


def _summed(parts: Shares, value: Callable[[Share], Floats]) -> dict[str, list[Floats]]:
    """Return the value of each unit, summed over the matrices of its layer."""
    return {
        kind: [np.sum([value(share) for share in layer], axis=0) for layer in layers]
        for kind, layers in parts.items()
    }
