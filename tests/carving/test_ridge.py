"""Ridge regression from second moments against numpy, and the choice of the ridge."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from zerolm.carving.repair import ridge as moments
from zerolm.carving.repair.ridge import Fit, SecondMoments


def problem(tokens: int, mean: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs (n, 6), targets (n, 3), and columns to start from (6, 3)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(tokens, 6, generator=generator) + mean
    true = torch.randn(6, 3, generator=generator)
    return x, x @ true + torch.randn(tokens, 3, generator=generator) + mean, 0.5 * true


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("share", [1e-4, 1e-2, 1.0])
def test_ridge_is_towards_the_start(bias: bool, share: float) -> None:
    x, t, start = problem(50, mean=3.0)
    moments = SecondMoments(6, 3, bias=bias)
    moments.add(x[:20], t[:20])
    moments.add(x[20:], t[20:])
    first = torch.cat([start, torch.ones(1, 3)]) if bias else start
    found = moments.solve(first.double(), share).numpy()
    a, b, w = (each.double().numpy() for each in (x, t, start))
    centre = a.mean(0) if bias else np.zeros(6)
    shift = b.mean(0) if bias else np.zeros(3)
    gram = (a - centre).T @ (a - centre)
    ridge = share * np.trace(gram) / 6 * np.eye(6)
    wanted = np.linalg.solve(gram + ridge, (a - centre).T @ (b - shift) + ridge @ w)
    np.testing.assert_allclose(found[:6], wanted, rtol=1e-6, atol=1e-6)
    if bias:
        np.testing.assert_allclose(found[6], shift - centre @ wanted, rtol=1e-6, atol=1e-6)
    apart = b - a @ found[:6] - (found[6] if bias else 0)
    assert moments.loss(torch.from_numpy(found)) == pytest.approx(np.square(apart).sum(1).mean(), rel=1e-9)


def test_a_strong_ridge_where_tokens_are_few_and_a_weak_one_where_they_are_many() -> None:
    def chosen(tokens: int) -> float:
        x, t, start = problem(tokens)
        fit = Fit.empty(6, 3, bias=False)
        fit.add(x.reshape(-1, 2, 6), t.reshape(-1, 2, 3), None, 0)
        return fit.best(1.2 * start.double())[1]

    assert chosen(10) > chosen(5000)


@pytest.mark.parametrize(("noise", "wanted"), [(0.1, 1e-2), (3.0, 10.0)])
def test_mixtures_of_many_outputs_choose_the_ridge_of_all(
    noise: float, wanted: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(1)
    x, true = torch.randn(12, 5, 20, generator=generator), torch.randn(20, 300, generator=generator)
    fit = Fit.empty(20, 300, bias=False)
    fit.add(x, x @ true + noise * torch.randn(12, 5, 300, generator=generator), None, 0)
    start = 0.9 * true.double()
    grid = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
    assert fit.chosen(start, grid) == wanted
    monkeypatch.setattr(moments, "OUTPUTS", 300)
    assert fit.chosen(start, grid) == wanted
    losses = [fit.held.loss(fit.solved.solve(start, share)) for share in grid]
    assert grid[int(np.argmin(losses))] == wanted


def test_one_sequence_in_five_is_held_out_and_padding_left_out() -> None:
    x, t, _ = problem(40)
    mask = torch.ones(20, 2)
    mask[4, 1] = mask[5, 0] = 0
    fit = Fit.empty(6, 3, bias=True)
    for first in range(0, 20, 3):
        part = slice(first, first + 3)
        fit.add(x.reshape(20, 2, 6)[part], t.reshape(20, 2, 3)[part], mask[part], first)
    assert (fit.solved.count, fit.held.count) == (31, 7)
    rows = mask.bool().ravel()
    every = SecondMoments(6, 3, bias=True)
    every.add(x[rows], t[rows])
    assert torch.allclose((fit.solved + fit.held).xx, every.xx)
    columns, share = fit.best(torch.zeros(7, 3).double())
    assert torch.allclose(columns, every.solve(torch.zeros(7, 3).double(), share))


def test_inputs_that_are_always_zero_keep_their_columns() -> None:
    moments = SecondMoments(6, 3, bias=False)
    moments.add(torch.zeros(9, 6), torch.ones(9, 3))
    start = torch.randn(6, 3).double()
    assert torch.equal(moments.solve(start, 1e-2), start)
