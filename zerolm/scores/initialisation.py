"""Variance of the weights at random initialisation, as a function of shapes."""

from __future__ import annotations

from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints, Shapes

DEVIATION: Final = 0.02
INITIALISATIONS: Final = ("scaled", "normal", "xavier", "kaiming", "orthogonal")


def variance(shapes: Shapes, depth: Ints, init: str = "scaled") -> Floats:
    """Return the expected square of a weight, (n, m), for an initialisation.

    ``scaled``: deviation 0.02, divided by sqrt(2 L) where the space says so (GPT-2's residual
    projections); ``normal``: 0.02 everywhere; ``xavier``: 2 / (rows + cols); ``kaiming``: 2 / cols;
    ``orthogonal``: min(rows, cols) unit singular values, hence 1 / max(rows, cols).
    """
    rows, cols = np.maximum(shapes.rows, 1), np.maximum(shapes.cols, 1)
    if init == "scaled":
        residual = 2.0 * np.broadcast_to(depth, shapes.width.shape)[:, None]
        return DEVIATION**2 / np.where(shapes.scaled, residual, 1.0)
    if init == "normal":
        return np.full(rows.shape, DEVIATION**2)
    if init == "xavier":
        return 2.0 / (rows + cols)
    if init == "kaiming":
        return 2.0 / cols
    if init == "orthogonal":
        return 1.0 / np.maximum(rows, cols)
    raise ValueError(f"init {init!r} is not known; there are {', '.join(INITIALISATIONS)}")
