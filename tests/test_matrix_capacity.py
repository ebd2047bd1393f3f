"""The ZeroLM score of real matrices: Frobenius norm against singular values, on drawn and trained weights."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matrix_capacity import capacity, capacity_svd, zerolm_of_weights


@given(
    rows=st.integers(1, 60),
    cols=st.integers(1, 60),
    scale=st.sampled_from([1e-6, 0.02, 1.0, 1e4]),
    dtype=st.sampled_from([np.float16, np.float32, np.float64]),
    seed=st.integers(0, 2**32 - 1),
)
def test_frobenius_equals_svd(rows: int, cols: int, scale: float, dtype: type, seed: int) -> None:
    matrix = (np.random.default_rng(seed).normal(size=(rows, cols)) * scale).astype(dtype)
    if not np.isfinite(matrix).all():
        return
    assert capacity(matrix) == pytest.approx(capacity_svd(matrix), rel=1e-5, abs=1e-30)
    assert capacity(matrix) == pytest.approx(capacity(matrix.T), rel=1e-12)


def test_a_half_precision_sum_of_squares_does_not_overflow() -> None:
    matrix = np.full((300, 300), 60000.0, np.float16)
    assert capacity(matrix) == pytest.approx(300 * float(np.float16(60000.0)) ** 2)


def test_alpha_weighs_the_two_kinds() -> None:
    attention, ffn = [np.eye(3), 2 * np.eye(3)], [3 * np.ones((2, 5))]
    assert zerolm_of_weights(attention, ffn, 1.0) == pytest.approx(1.0 + 4.0)
    assert zerolm_of_weights(attention, ffn, 0.0) == pytest.approx(9.0 * 10 / 2)
    for svd in (False, True):
        expected = 0.25 * 5.0 + 0.75 * 45.0
        assert zerolm_of_weights(attention, ffn, 0.25, svd=svd) == pytest.approx(expected)


@pytest.mark.parametrize("matrix", [np.ones(3), np.ones((0, 3)), np.ones((2, 2, 2))])
def test_what_is_no_matrix_is_refused(matrix: np.ndarray) -> None:
    with pytest.raises(ValueError, match="rows and columns"):
        capacity(matrix)


def test_alpha_must_be_finite() -> None:
    with pytest.raises(ValueError, match="alpha"):
        zerolm_of_weights([np.eye(2)], [np.eye(2)], float("nan"))


def test_trained_weights() -> None:
    folder = os.environ.get("ZEROLM_MODELS")
    if not folder:
        pytest.skip("ZEROLM_MODELS does not name a folder with pretrained models")
    from safetensors.numpy import load_file

    tensors = load_file(Path(folder) / "pydec" / "model.safetensors")
    attention = [t for name, t in tensors.items() if "self_attn" in name and t.ndim == 2]
    ffn = [t for name, t in tensors.items() if "mlp" in name and t.ndim == 2]
    assert len(attention) == 8 * 4
    assert len(ffn) == 8 * 3
    fast, slow = (zerolm_of_weights(attention, ffn, 0.6, svd=svd) for svd in (False, True))
    assert fast == pytest.approx(slow, rel=1e-5)
