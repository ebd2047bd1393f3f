"""Activations in 8 bits are those of llama.cpp's blocks of 32."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from zerolm.networks.hooks import rounded_inputs

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from zerolm.carving.bits.kernels import rounded
from zerolm.checkpoints.weight_types import BY_NAME


def reading(columns: int) -> nn.Linear:
    """A module that sends what it reads."""
    module = nn.Linear(columns, columns, bias=False)
    module.weight.data = torch.eye(columns)
    return module


def test_linear_modules_read_blocks_of_8_bits() -> None:
    values = np.random.default_rng(0).standard_normal((7, 64)).astype(np.float32)
    module, x = reading(64), torch.from_numpy(values)
    with torch.no_grad(), rounded_inputs():
        read = module(x).numpy()
    largest = np.abs(values.reshape(7, 2, 32)).max(2).repeat(32, 1)
    assert np.abs(read - values).max() > 0
    assert (np.abs(read - values) <= largest / 127 / 2 * 1.001).all()
    # its scale is in 16 bits
    np.testing.assert_allclose(read, rounded(values, BY_NAME["Q8_0"], None), atol=float(largest.max()) / 100)
    with torch.no_grad():
        np.testing.assert_array_equal(module(x).numpy(), values)


def test_what_falls_into_no_blocks_stays() -> None:
    x = torch.randn(3, 20)
    with torch.no_grad(), rounded_inputs():
        assert torch.equal(reading(20)(x), x)
