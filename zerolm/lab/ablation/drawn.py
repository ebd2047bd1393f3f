"""S_attn and S_ffn of networks at random initialisation, drawn without drawing their weights."""

from __future__ import annotations

import numpy as np

from zerolm.architecture import Floats, Ints, Shapes
from zerolm.scores.base import ScoreBatch
from zerolm.scores.capacity import variance


def drawn_norms(shapes: Shapes, depth: Ints, init: str, rng: np.random.Generator) -> Floats:
    """Return ||W||_F^2 of every matrix, (n, m), as if its weights had been drawn.

    The squares of k independent N(0, s^2) weights add up to s^2 times a chi-square variable with k degrees
    of freedom, so one number a matrix is enough. Xavier and Kaiming are the normal ones; their uniform
    siblings have the same expectation and 0.4 of the variance. An orthogonal matrix always has
    ||W||_F^2 = min(rows, cols): there is nothing to draw.
    """
    expected = variance(shapes, depth, init)
    if init == "orthogonal":
        return np.asarray(expected * shapes.weights)
    return np.where(shapes.present, expected * rng.chisquare(np.maximum(shapes.weights, 1)), 0.0)


def drawn_parts(batch: ScoreBatch, init: str, seed: int) -> tuple[Floats, Floats]:
    """Return S_attn and S_ffn (ZeroLM, equations 3-6) of one drawn network an architecture, (n,) each."""
    shapes, rng = batch.shapes, np.random.default_rng(seed)
    norms = drawn_norms(shapes, np.repeat(batch.depths, batch.depths), init, rng)
    capacity = norms / np.maximum(np.minimum(shapes.rows, shapes.cols), 1)
    starts = np.cumsum(batch.depths) - batch.depths
    attention, ffn = (
        np.add.reduceat((capacity * role).sum(axis=1), starts) for role in (shapes.attention, shapes.ffn)
    )
    return attention, ffn
