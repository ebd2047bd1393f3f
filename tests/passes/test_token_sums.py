"""Second moments of tokens in batches against numpy, and the weights of tokens by the stream."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import model

from zerolm.networks.blocks import Blocks
from zerolm.networks.roles import layers_of
from zerolm.passes.token_sums import TokenSums
from zerolm.passes.token_weights import token_weights


@pytest.mark.parametrize("centred", [False, True])
@given(seed=st.integers(0, 10**6), batches=st.integers(1, 5), mean=st.sampled_from([0.0, 1.0, 1e3]))
@settings(max_examples=30, deadline=None)
def test_sums_are_those_of_all_tokens_at_once(seed: int, batches: int, mean: float, centred: bool) -> None:
    generator = np.random.default_rng(seed)
    x = (generator.normal(size=(8 * batches, 4)) + mean).astype(np.float32)
    t = (generator.normal(size=(8 * batches, 3)) - mean).astype(np.float32)
    w = generator.random(8 * batches).astype(np.float32)
    moments = TokenSums(4, 3, centred=centred)
    for part in np.split(np.arange(len(x)), batches):
        moments.add(*(torch.from_numpy(each[part]) for each in (x, t, w)))
    a, b, c = (each.astype(np.float64) for each in (x, t, w))
    assert moments.count == len(x)
    assert moments.total == pytest.approx(c.sum(), rel=1e-6)
    np.testing.assert_allclose(moments.inputs, c @ a, rtol=1e-5, atol=1e-5 * (1 + mean))
    np.testing.assert_allclose(moments.outputs, c @ b, rtol=1e-5, atol=1e-5 * (1 + mean))
    if centred:
        a, b = a - c @ a / c.sum(), b - c @ b / c.sum()
    scale = 1.0 if centred else (1 + mean) ** 2
    np.testing.assert_allclose(moments.squares, a.T @ (c[:, None] * a), rtol=1e-4, atol=1e-3 * scale)
    np.testing.assert_allclose(moments.crossed, a.T @ (c[:, None] * b), rtol=1e-4, atol=1e-3 * scale)


def test_a_small_variance_far_from_zero_is_not_lost() -> None:
    """In float32 the difference of two sums of squares near 1e6 would be noise."""
    x = torch.randn(4096, 2, generator=torch.Generator().manual_seed(0)) * 1e-1 + 1e3
    moments = TokenSums(2, centred=True)
    for part in x.split(512):
        moments.add(part)
    wanted = torch.cov(x.double().T, correction=0)
    np.testing.assert_allclose(moments.squares / 4096, wanted, rtol=1e-3, atol=1e-5)


def states(rows: int = 3, length: int = 7, first: float = 1.0) -> torch.Tensor:
    """A stream (b, t, d) whose first tokens are larger by a factor."""
    stream = torch.randn(rows, length, 32, generator=torch.Generator().manual_seed(0))
    stream[:, 0] *= first
    return stream


def blocks_of(name: str, mask: torch.Tensor | None = None) -> Blocks:
    batch = {"input_ids": torch.ones(3, 7, dtype=torch.long)}
    return Blocks(model(name), [batch if mask is None else batch | {"attention_mask": mask}])


@pytest.mark.parametrize("name", ["llama", "gemma2", "bert"])
def test_errors_count_relative_to_what_norms_divide_by(name: str) -> None:
    blocks, stream, output = blocks_of(name), states(first=3.0), states() + 1
    layer = layers_of(blocks.model)[0]
    scale = stream.square().mean(-1)
    if name == "gemma2":
        scale = scale * output.square().mean(-1)
    torch.testing.assert_close(token_weights(blocks, 0, layer, stream, output), 1 / scale)


def test_a_first_token_weighs_as_its_gradients_do() -> None:
    mask = torch.ones(3, 7, dtype=torch.long)
    mask[1, 5:] = 0
    mask[2, 0] = 0
    blocks, stream = blocks_of("llama", mask), states(first=1e3)
    weights = token_weights(blocks, 0, layers_of(blocks.model)[0], stream, None, first=40.0)
    plain = mask / stream.square().mean(-1)
    torch.testing.assert_close(weights[:, 1:], plain[:, 1:])
    assert weights[0, 0] == pytest.approx(40 * float(plain[0, 1:].mean()))
    assert weights[1, 0] == pytest.approx(40 * float(plain[1, 1:5].mean()))
    assert weights[2, 0] == 0.0  # padding
