"""The losses of single cuts, which plans sum up.

Weights choose units within a layer tolerably, but hardly show which layer to cut. Losses of single cuts,
interpolated and summed, rank whole plans far better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import Cut
from zerolm.units.stream.narrowing import Width

STREAM_STEPS: Final = 32
"""Largest number of widths of the stream whose losses are predicted."""


@dataclass(frozen=True, eq=False)
class LossTable(Criterion):
    """Chooses units as ``by`` does; the score of a choice is minus its loss.

    ``losses[kind][layer]`` (s,) belong to ``sizes[kind]`` (s,), ascending; the last size is the whole, with
    loss 0. Between sizes losses are interpolated geometrically, because the loss of the last units is a
    multiple of that of the first, and linearly towards 0. ``without_layer`` (depth,) are the losses without a
    layer. ``stream`` has those of a narrower stream, if it can be cut. ``repaired`` has the losses of the
    same cuts after least squares, where they are estimated.
    """

    by: Criterion
    sizes: dict[str, Ints]
    losses: dict[str, list[Floats]]
    without_layer: Floats
    stream: StreamLosses | None = None
    repaired: LossTable | None = None

    def choose(self, layer: int, kind: str, count: int) -> Ints:
        return self.by.choose(layer, kind, count)

    def score(self, layer: int, kind: str, count: int) -> float:
        return -interpolated(count, self.sizes[kind], self.losses[kind][layer])

    def without(self, layer: int) -> float:
        return -float(self.without_layer[layer])

    def narrower(self, width: Width) -> float | None:
        return None if self.stream is None else -self.stream.loss(width)

    @property
    def every(self) -> list[LossTable]:
        """The losses as cut; where losses after repair are known also the means of both, and the latter."""
        return [self] if self.repaired is None else [self, midway(self, self.repaired), self.repaired]

    def predicted(self, cut: Cut) -> float:
        """Return the sum of the losses of a cut's parts."""
        kept = {layer.layer: layer for layer in cut.layers}
        total = self.stream.loss(cut.narrowing.width) if cut.narrowing and self.stream else 0.0
        for layer in range(cut.parent.depth):
            if layer not in kept:
                total -= self.without(layer)
                continue
            total -= sum(self.score(layer, kind, len(units)) for kind, units in kept[layer].kept.items())
        return total


def midway(table: LossTable, other: LossTable) -> LossTable:
    """Return the geometric mean of two tables of the same cuts; the arithmetic mean of losses with a 0."""
    stream = table.stream
    if stream is not None and other.stream is not None:
        losses = {head: _mean_of(row, other.stream.losses[head]) for head, row in stream.losses.items()}
        stream = replace(stream, losses=losses)
    return replace(
        table,
        losses={
            kind: [_mean_of(*pair) for pair in zip(rows, other.losses[kind], strict=True)]
            for kind, rows in table.losses.items()
        },
        without_layer=_mean_of(table.without_layer, other.without_layer),
        stream=stream,
        repaired=None,
    )


def _mean_of(losses: Floats, others: Floats) -> Floats:
    geometric = (losses > 0) & (others > 0)
    return np.where(geometric, np.sqrt(np.where(geometric, losses * others, 1.0)), (losses + others) / 2)


@dataclass(frozen=True, eq=False)
class StreamLosses:
    """Losses of a narrower stream with everything else whole, (s,) at each of ``sizes`` (s,), ascending.

    ``losses`` are keyed by whether the head is tied; the loss at the parent's width is 0.
    """

    sizes: Ints
    losses: dict[bool, Floats]

    def by_width(self, tied: bool) -> dict[int, float]:
        """Return the losses by width."""
        return dict(zip(self.sizes.tolist(), self.losses[tied].tolist(), strict=True))

    def loss(self, width: Width) -> float:
        """Return the loss of a width, interpolated."""
        return interpolated(width.hidden, self.sizes, self.losses[width.tied])


def interpolated(size: int, sizes: Ints, losses: Floats) -> float:
    """Return the loss at a size, geometrically between two that are not 0."""
    above = int(np.searchsorted(sizes, size))
    ends = slice(max(above - 1, 0), above + 1)
    geometric = (losses[ends] > 0).all()
    loss = np.interp(size, sizes[ends], np.log(losses[ends]) if geometric else losses[ends])
    return float(np.exp(loss) if geometric else loss)


def stream_widths(whole: int) -> Ints:
    """Return the widths of the stream whose losses are predicted, ascending."""
    return steps(whole, STREAM_STEPS)


def steps(whole: int, most: int) -> Ints:
    """Return at most ``most`` sizes up to the whole, evenly spread, ascending."""
    return np.unique([max(1, round(step * whole / most)) for step in range(1, most + 1)])
