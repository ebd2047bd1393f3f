"""Second moments of tokens that come in batches, far from zero and near, against numpy."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolm.carving.moments import Moments


@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([0.0, 1.0, 1e3]))
@settings(max_examples=30, deadline=None)
def test_sums_are_those_of_all_tokens_at_once(seed: int, batches: int, mean: float) -> None:
    generator = np.random.default_rng(seed)
    x = (generator.normal(size=(8 * batches, 4)) + mean).astype(np.float32)
    t = generator.normal(size=(8 * batches, 3)).astype(np.float32)
    moments = Moments(4, 3)
    for part in np.split(np.arange(len(x)), batches):
        moments.add(torch.from_numpy(x[part]), torch.from_numpy(t[part]))
    a, b = x.astype(np.float64), t.astype(np.float64)
    scale = (1 + mean) ** 2
    assert moments.count == len(x)
    np.testing.assert_allclose(moments.inputs, a.sum(0), rtol=1e-6, atol=1e-5 * scale)
    np.testing.assert_allclose(moments.outputs, b.sum(0), rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(moments.squares, a.T @ a, rtol=1e-6, atol=1e-5 * scale)
    np.testing.assert_allclose(moments.crossed, a.T @ b, rtol=1e-5, atol=1e-4 * (1 + mean))
    centred = a - a.mean(0)
    np.testing.assert_allclose(moments.centred_squares, centred.T @ centred, rtol=1e-4, atol=1e-3)


def test_a_small_variance_far_from_zero_is_not_lost() -> None:
    """In float32 the difference of two sums of squares near 1e6 would be noise."""
    x = torch.randn(4096, 2, generator=torch.Generator().manual_seed(0)) * 1e-1 + 1e3
    moments = Moments(2)
    for part in x.split(512):
        moments.add(part)
    wanted = torch.cov(x.double().T, correction=0)
    np.testing.assert_allclose(moments.centred_squares / 4096, wanted, rtol=1e-3, atol=1e-5)
