"""The ZeroLM score of real weight matrices, by Frobenius norm and, as the reference, by SVD."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike


def capacity(matrix: ArrayLike) -> float:
    """||W||_F^2 / min(rows, cols): the mean squared singular value (ZeroLM, equations 3 and 4)."""
    w = _matrix(matrix)
    return float(np.sum(np.square(w, dtype=np.float64))) / min(w.shape)


def capacity_svd(matrix: ArrayLike) -> float:
    """The same from the singular values themselves: slow, for reference."""
    values = np.linalg.svd(_matrix(matrix).astype(np.float64), compute_uv=False)
    return float(np.mean(values**2))


def zerolm_of_weights(
    attention: Iterable[ArrayLike], ffn: Iterable[ArrayLike], alpha: float, svd: bool = False
) -> float:
    """alpha S_attn + (1 - alpha) S_ffn over all attention and FFN matrices (equations 5-7)."""
    if not np.isfinite(alpha):
        raise ValueError(f"alpha must be a finite number, not {alpha}")
    of = capacity_svd if svd else capacity
    return alpha * sum(map(of, attention)) + (1.0 - alpha) * sum(map(of, ffn))


def _matrix(matrix: ArrayLike) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    w = np.asarray(matrix)
    if w.ndim != 2 or not w.size:
        raise ValueError(f"a weight matrix must have rows and columns, not shape {w.shape}")
    return w
