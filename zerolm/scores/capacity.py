"""Closed-form capacity scores: expectations over random weights, without sampling any."""

from __future__ import annotations

from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints, Shapes
from zerolm.scores.base import closed_form
from zerolm.settings import REQUIRED, Setting

DEVIATION: Final = 0.02
INITIALISATIONS: Final = ("scaled", "normal", "xavier", "kaiming", "orthogonal")
MAX_ALPHA: Final = 1e6
"""Far beyond any alpha whose ranking differs from its neighbours', and far from overflow."""
ALPHAS: Final = (0.5, 1.0, 1.1)
"""Values of alpha for ``zerolm`` where none is named; none of them suits every space."""
ALPHA: Final = Setting(
    "alpha",
    "number",
    REQUIRED,
    "weight of attention against FFN in zerolm; no one value suits every space, and geo needs none",
    low=-MAX_ALPHA,
    high=MAX_ALPHA,
    examples=ALPHAS,
)
INIT: Final = Setting(
    "init", "text", "scaled", "initialisation that the score assumes", choices=INITIALISATIONS
)


@closed_form(
    "zerolm",
    source="ZeroLM, arXiv 2503.18646, equations 3-7, in expectation",
    sees_depth=True,
    settings=(ALPHA, INIT),
)
def zerolm(shapes: Shapes, depth: Ints, /, *, alpha: float, init: str) -> Floats:
    """Return alpha S_attn + (1 - alpha) S_ffn of each layer, (n,).

    S(W) = ||W||_F^2 / min(rows, cols), whose expectation is max(rows, cols) x variance. A fused QKV
    matrix stays fused.
    """
    capacity = np.maximum(shapes.rows, shapes.cols) * variance(shapes, depth, init)
    weight = alpha * shapes.attention + (1.0 - alpha) * shapes.ffn
    return np.asarray((weight * capacity).sum(axis=1), np.float64)


@closed_form("geo", source="geometric mean of attention and FFN weights")
def geo(shapes: Shapes, depth: Ints, /) -> Floats:
    """Return sqrt(P_attn P_ffn) of each layer, (n,), with P the weights of its attention and FFN matrices."""
    attention = (shapes.weights * shapes.attention).sum(axis=1)
    ffn = (shapes.weights * shapes.ffn).sum(axis=1)
    return np.asarray(np.sqrt(attention.astype(np.float64)) * np.sqrt(ffn.astype(np.float64)))


def saturation(depth: Ints, mean_width: Floats) -> Floats:
    """Return L / (L + log3 d): depth beyond about log3 of the width adds little."""
    return np.asarray(depth / (depth + np.log(mean_width) / np.log(3.0)), np.float64)


@closed_form(
    "geo_saturating",
    source="geo x L / (L + log3 d); depth saturates as in Levine et al., arXiv 2006.12467",
    factor=saturation,
)
def geo_saturating(shapes: Shapes, depth: Ints, /) -> Floats:
    """Return ``geo``; its factor L / (L + log3 d) is applied to the sum over layers."""
    return geo(shapes, depth)


def _projections(shapes: Shapes) -> tuple[Floats, Floats, Floats]:
    """Return rows and columns of each matrix's projections, and how many there are, (n, m) each."""
    rows = np.where(shapes.present, shapes.rows // shapes.parts, 1).astype(np.float64)
    cols = np.where(shapes.present, shapes.cols, 1).astype(np.float64)
    return rows, cols, np.where(shapes.present, shapes.parts, 0).astype(np.float64)


@closed_form("stable_rank", source="||W||_F^2 / ||W||_2^2 at the Marchenko-Pastur edge")
def stable_rank(shapes: Shapes, depth: Ints, /) -> Floats:
    """Return the sum over projections of rows cols / (sqrt rows + sqrt cols)^2, (n,); no scale enters."""
    rows, cols, count = _projections(shapes)
    return np.asarray((count * rows * cols / (np.sqrt(rows) + np.sqrt(cols)) ** 2).sum(axis=1))


@closed_form("spectral_capacity", source="NSC, arXiv 2609.23087, in the Marchenko-Pastur limit")
def spectral_capacity(shapes: Shapes, depth: Ints, /) -> Floats:
    """Return the sum over projections of E sum_i ln(1 + sigma_i^2), (n,), at variance 2 / (rows + cols).

    The Marchenko-Pastur integral k int ln(1 + g x) p(x) dx has a closed form, the Shannon transform
    (Tulino and Verdu, Random Matrix Theory and Wireless Communications, equation 1.14), with
    k = min(rows, cols), ratio b = k / max and g = variance x max.
    """
    rows, cols, count = _projections(shapes)
    k, largest = np.minimum(rows, cols), np.maximum(rows, cols)
    return np.asarray((count * k * shannon_transform(2.0 * largest / (rows + cols), k / largest)).sum(axis=1))


def shannon_transform(g: Floats, b: Floats) -> Floats:
    """Return int ln(1 + g x) p_b(x) dx for the Marchenko-Pastur density p_b.

    It lies on ((1 - sqrt b)^2, (1 + sqrt b)^2); ``b`` = min / max in (0, 1]; x are the eigenvalues of
    W W^T / (variance x max).
    """
    upper = np.sqrt(g * (1.0 + np.sqrt(b)) ** 2 + 1.0)
    lower = np.sqrt(g * (1.0 - np.sqrt(b)) ** 2 + 1.0)
    f = (upper - lower) ** 2
    return np.asarray(np.log(1.0 + g - f / 4) + np.log(1.0 + g * b - f / 4) / b - f / (4 * b * g), np.float64)


@closed_form("log_complexity", source="sum of ln ||W||_F, ZeroLM figure 3", sees_depth=True, settings=(INIT,))
def log_complexity(shapes: Shapes, depth: Ints, /, *, init: str) -> Floats:
    """Return the sum over matrices of 1/2 ln(rows cols variance), (n,)."""
    squares = np.where(shapes.present, shapes.weights * variance(shapes, depth, init), 1.0)
    return np.asarray(0.5 * np.log(squares).sum(axis=1), np.float64)


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
    return 1.0 / np.maximum(rows, cols)
