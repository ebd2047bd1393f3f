"""One score with an option that has a default, one with an option that is needed."""

from __future__ import annotations

import numpy as np

from zerolm.architecture import Architecture, Floats, Ints, Shapes
from zerolm.scores import closed_form, whole_score
from zerolm.settings import REQUIRED, Setting

POWER = Setting("my_option", "integer", 1, "power of the FFN width", low=1, high=4)
LIMIT = Setting("limit_width", "number", REQUIRED, "width beyond which nothing counts", low=0)


@closed_form("mine", source="an example", settings=(POWER,))
def mine(shapes: Shapes, depth: Ints, /, *, my_option: int) -> Floats:
    """Return the FFN weights to a power, (n,)."""
    return np.asarray((shapes.weights * shapes.ffn).sum(axis=1), np.float64) ** my_option


@whole_score("narrow", source="an example", settings=(LIMIT,))
def narrow(architecture: Architecture, /, *, limit_width: float) -> float:
    """Return the mean width up to a limit."""
    return min(architecture.mean_width, limit_width)
