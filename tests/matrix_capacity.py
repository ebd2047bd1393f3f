"""The ZeroLM score of real weight matrices, as its paper defines it."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike


def capacity_svd(matrix: ArrayLike) -> float:
    """The mean squared singular value (ZeroLM, equations 3 and 4)."""
    return float(np.mean(np.linalg.svd(np.asarray(matrix, np.float64), compute_uv=False) ** 2))


def zerolm_of_weights(attention: Iterable[ArrayLike], ffn: Iterable[ArrayLike], alpha: float) -> float:
    """alpha S_attn + (1 - alpha) S_ffn over all attention and FFN matrices (equations 5-7).

    Singular values squared add up to the squared Frobenius norm.
    """

    def summed(matrices: Iterable[ArrayLike]) -> float:
        arrays = (np.asarray(matrix, np.float64) for matrix in matrices)
        return sum(float(np.square(array).sum()) / min(array.shape) for array in arrays)

    return alpha * summed(attention) + (1.0 - alpha) * summed(ffn)
