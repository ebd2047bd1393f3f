"""The loss of rounding a matrix, from the errors of some of its rows.

For a matrix W with inputs x and output gradients G, rounding costs 1/2 f sum_rc E[G_r^2] e_rc^2 E[x_c^2]
(``zerolm.passes.matrix_moments``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.carving.bits.kernels import Values
from zerolm.passes.matrix_moments import MatrixMoments

MOST_ROWS: Final = 1024
WEIGHTS: Final = 1 << 18
FEWEST_ROWS: Final = 64
"""Errors are measured on ``MOST_ROWS`` rows of a tensor, evenly spread, or on fewer with about ``WEIGHTS``
weights, but at least this number."""
FEWEST: Final = 4
"""Least number of measured rows of each matrix in a tensor of many."""


def rows_measured(columns: int) -> int:
    """Return the number of rows of this length on which the errors of a tensor are measured."""
    return min(MOST_ROWS, max(FEWEST_ROWS, WEIGHTS // columns))


def measured_rows(matrices: int, rows: int, columns: int) -> Ints:
    """Return the rows on which errors are measured in each of ``matrices`` of the same tensor, ascending."""
    return spread_rows(rows, max(-(-rows_measured(columns) // matrices), FEWEST))


def spread_rows(rows: int, most: int) -> Ints:
    """Return at most ``most`` rows, evenly spread."""
    return np.unique(np.linspace(0, rows - 1, min(rows, most)).round().astype(np.int64))


def loss_of_rows(squares: Floats, taken: Ints, moments: MatrixMoments) -> float:
    """Return the loss of a matrix from the squared errors (n, k) of the rows ``taken`` (n,).

    Columns that are left out at the end of the rows count in proportion to their inputs.
    """
    columns = squares.shape[1]
    weights, inputs = moments.gradients[taken], moments.inputs[:columns]
    share = float(weights.sum() / moments.gradients.sum()) or 1.0
    if columns < len(moments.inputs):
        share *= float(inputs.sum() / moments.inputs.sum()) or 1.0
    return 0.5 * moments.factor * float(weights @ (squares @ inputs)) / share


def importances_of(parts: Sequence[MatrixMoments]) -> Values:
    """Return the weights (k,) of squared errors by column of a matrix with these moments.

    They are positive, of mean 1; all 1 where all inputs are 0.
    """
    moments = np.asarray(sum(part.gradients.sum() * part.factor * part.inputs for part in parts))
    mean = float(moments.mean())
    if not mean > 0.0:
        return np.ones(len(moments), np.float32)
    return np.maximum(moments / mean, 1e-6).astype(np.float32)
