"""The scores that every other score has to beat: counts, depth and width."""

from __future__ import annotations

import numpy as np

from zerolm.architecture import Floats, Ints, Shapes
from zerolm.costs import COSTS
from zerolm.scores.base import closed_form, cost_score

for _name in ("params", "body_params", "macs"):
    cost_score(_name, COSTS.index(_name))


@closed_form("depth", source="the number of layers", baseline=True)
def depth(shapes: Shapes, depth: Ints, /) -> Ints:
    """Return one a layer, (n,)."""
    return np.ones(len(shapes), np.int64)


def per_layer(depth: Ints, mean_width: Floats) -> Floats:
    return np.asarray(1.0 / np.broadcast_to(depth, np.broadcast(depth, mean_width).shape), np.float64)


@closed_form("width", source="the mean width of the residual stream", factor=per_layer, baseline=True)
def width(shapes: Shapes, depth: Ints, /) -> Ints:
    """Return the width of each layer, (n,); the factor makes their sum a mean."""
    return shapes.width


@closed_form("depth_width", source="L d", baseline=True)
def depth_width(shapes: Shapes, depth: Ints, /) -> Ints:
    """Return the width of each layer, (n,): L d in all."""
    return shapes.width


@closed_form("depth_width2", source="L d^2", baseline=True)
def depth_width2(shapes: Shapes, depth: Ints, /) -> Ints:
    """Return the squared width of each layer, (n,): L d^2 in all."""
    return shapes.width**2
