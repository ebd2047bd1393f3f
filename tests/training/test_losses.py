"""Losses by their identities, and beside plain numpy."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import model
from torch import Tensor

from zerolm.networks.batch import NOTHING
from zerolm.training.losses import (
    dist,
    forward_kl,
    labelled,
    next_token,
    relative_mse,
    reverse_kl,
    standardised,
    top_kl,
)

SEEDS = st.integers(0, 10**6)
TEMPERATURES = st.floats(0.5, 8.0)


def drawn(seed: int, *shape: int, scale: float = 2.0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32) * scale


def softmax(logits: Tensor) -> Any:
    values = np.exp(logits.double().numpy() - logits.double().numpy().max(-1, keepdims=True))
    return values / values.sum(-1, keepdims=True)


def likeliest(theirs: Tensor, k: int, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    log_p, ids = torch.log_softmax(theirs / temperature, -1).topk(k, -1)
    return log_p, ids


@given(SEEDS, TEMPERATURES)
def test_a_divergence_is_that_of_numpy_and_none_of_equals(seed: int, temperature: float) -> None:
    ours, theirs = drawn(seed, 2, 5, 11), drawn(seed + 1, 2, 5, 11)
    p, q = softmax(theirs / temperature), softmax(ours / temperature)
    twin = (p * np.log(p / q)).sum(-1).mean() * temperature**2
    assert float(forward_kl(ours, theirs, temperature)) == pytest.approx(twin, rel=1e-3, abs=1e-5)
    assert float(reverse_kl(theirs, ours, temperature)) == pytest.approx(twin, rel=1e-3, abs=1e-5)
    assert twin >= 0
    assert float(forward_kl(ours, ours + 3.0, temperature)) == pytest.approx(0, abs=1e-4)


@given(SEEDS, st.integers(1, 10), TEMPERATURES)
def test_all_others_count_as_one(seed: int, k: int, temperature: float) -> None:
    ours, theirs = drawn(seed, 1, 3, 11), drawn(seed + 1, 1, 3, 11)
    log_p, ids = likeliest(theirs, k, temperature)
    p, q = (np.take_along_axis(softmax(x / temperature), ids.numpy(), -1) for x in (theirs, ours))
    p, q = (np.concatenate([part, 1 - part.sum(-1, keepdims=True)], -1) for part in (p, q))
    twin = (p * np.log(np.maximum(p, 1e-300) / q)).sum(-1).mean() * temperature**2
    assert float(top_kl(ours, log_p, ids, temperature)) == pytest.approx(twin, rel=1e-2, abs=1e-4)
    for at in ((temperature,), ()):
        every = float(top_kl(ours, *likeliest(theirs, 11, *at), *at))
        assert every == pytest.approx(float(forward_kl(ours, theirs, *at)), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("loss", [forward_kl, reverse_kl])
def test_at_high_temperatures_gradients_are_those_of_squares(loss: Any) -> None:
    """Hinton et al., equation 4: T^2 times the gradient goes to (z - v) / n of centred logits."""
    theirs = drawn(1, 1, 1, 7)
    ours = drawn(0, 1, 1, 7).requires_grad_()
    loss(ours, theirs, 300.0).backward()
    z, v = (x.detach() - x.detach().mean() for x in (ours, theirs))
    torch.testing.assert_close(ours.grad, (z - v) / 7, rtol=0.05, atol=5e-3)


@given(SEEDS, st.floats(0.1, 10), st.floats(-5, 5))
def test_scale_and_shift_of_a_channel_do_not_count(seed: int, scale: float, shift: float) -> None:
    ours, theirs = drawn(seed, 2, 12, 5), drawn(seed + 1, 2, 12, 5)
    scales = scale * (1 + torch.arange(5.0))
    loss = float(standardised([ours], [theirs]))
    assert float(standardised([ours * scales + shift], [theirs])) == pytest.approx(loss, abs=1e-3)
    assert float(standardised([ours], [ours * scales + shift])) == pytest.approx(0, abs=1e-4)
    assert float(standardised([ours], [-ours])) == pytest.approx(4, abs=1e-4)
    assert float(standardised([ours, ours], [theirs, ours])) == pytest.approx(loss / 2, abs=1e-4)
    correlations = [
        np.corrcoef(ours[sample, :, channel], theirs[sample, :, channel])[0, 1]
        for sample in range(2)
        for channel in range(5)
    ]
    assert loss == pytest.approx(2 * (1 - np.mean(correlations)), abs=1e-4)


@pytest.mark.parametrize("loss", [standardised, relative_mse])
@given(seed=SEEDS, tokens=st.integers(2, 6))
def test_padding_counts_nowhere(loss: Any, seed: int, tokens: int) -> None:
    """Whatever stands in it, a sequence with padding counts as one that is cut there."""
    ours, theirs = drawn(seed, 1, 6, 4), drawn(seed + 1, 1, 6, 4)
    padding = (torch.arange(6)[None] < tokens).long()
    noise = 1e3 * drawn(seed, 1, 6, 1) * (1 - padding[..., None])
    cut = float(loss([ours[:, :tokens]], [theirs[:, :tokens]]))
    assert float(loss([ours + noise], [theirs - noise], padding)) == pytest.approx(cut, rel=1e-3)


def test_a_channel_that_stands_still_has_a_finite_gradient() -> None:
    """The first state of a model that knows no positions is the same at equal tokens."""
    ours = torch.ones(1, 6, 3, requires_grad=True)
    standardised([ours], [drawn(0, 1, 6, 3)]).backward()
    assert bool(torch.isfinite(ours.grad).all())


@pytest.mark.parametrize("scale", [1e-7, 1e-15, 1e-21, 1e-22, 1e-33])
def test_a_channel_that_is_all_but_empty_counts_for_nothing(scale: float) -> None:
    """A norm of all-MiniLM-L6-v2 weighs a channel by 5e-33; training brings it to where squares underflow."""
    ours, theirs = drawn(0, 2, 12, 5), drawn(1, 2, 12, 5)
    scales = torch.tensor([1.0, 1.0, scale, 1.0, 1.0])
    ours = (ours * scales).requires_grad_()
    loss = standardised([ours], [theirs * scales])
    loss.backward()
    others = [0, 1, 3, 4]
    alone = float(standardised([ours[..., others]], [theirs[..., others]]).detach())
    assert float(loss.detach()) == pytest.approx(alone * 4 / 5, rel=1e-5)
    assert bool(torch.isfinite(ours.grad).all())
    assert not ours.grad[..., 2].any()


@given(SEEDS, TEMPERATURES)
def test_dist_is_that_of_numpy(seed: int, temperature: float) -> None:
    ours, theirs = drawn(seed, 2, 4, 6), drawn(seed + 1, 2, 4, 6)
    p, q = (softmax(logits / temperature).reshape(8, 6) for logits in (theirs, ours))
    rows = np.mean([1 - np.corrcoef(p[row], q[row])[0, 1] for row in range(8)])
    columns = np.mean([1 - np.corrcoef(p[:, column], q[:, column])[0, 1] for column in range(6)])
    twin = (rows + columns) * temperature**2
    assert float(dist(ours, theirs, temperature)) == pytest.approx(twin, rel=1e-2, abs=1e-3)
    assert float(dist(ours, ours - 2, temperature)) == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("loss", [forward_kl, reverse_kl, dist])
@pytest.mark.parametrize("spread", [30.0, 85.0, 1e4])
def test_tokens_that_hardly_ever_come_harm_no_gradient(loss: Any, spread: float) -> None:
    """Their probabilities are far below the smallest number whose square is one."""
    theirs = drawn(0, 2, 5, 9) - spread * (torch.arange(9) % 3)
    ours = (theirs + drawn(1, 2, 5, 9, scale=0.1)).requires_grad_()
    value = loss(ours, theirs)
    value.backward()
    assert 0 <= float(value.detach()) < 5
    assert bool(torch.isfinite(ours.grad).all())


def test_the_next_token_is_that_of_transformers() -> None:
    network = model("llama")
    ids = torch.randint(0, 64, (3, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        outputs = network(input_ids=ids, labels=ids)
    assert float(next_token(outputs.logits, ids)) == pytest.approx(float(outputs.loss), abs=1e-6)


def test_what_is_not_labelled_does_not_count() -> None:
    logits, labels = drawn(0, 2, 5, 7), torch.full((2, 5), NOTHING)
    labels[0, 1], labels[1, 4] = 3, 6
    p = softmax(logits)
    assert float(labelled(logits, labels)) == pytest.approx(
        -(math.log(p[0, 1, 3]) + math.log(p[1, 4, 6])) / 2, abs=1e-5
    )
