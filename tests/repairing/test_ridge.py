"""Ridge regression of targets in two parts against numpy, and the choice of the ridges."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from zerolm.repairing import ridge as moments
from zerolm.repairing.ridge import ERROR_RIDGES, OUTPUT_RIDGES, Fit, SecondMoments
from zerolm.units.ridges import UNTRIED, Ridges


def problem(tokens: int, mean: float = 0.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs (n, 6), targets in two parts (n, 3), and columns to start from (6, 3)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(tokens, 6, generator=generator) + mean
    true = torch.randn(6, 3, generator=generator)
    own = x @ true + torch.randn(tokens, 3, generator=generator) + mean
    lost = x @ torch.randn(6, 3, generator=generator) + 5 * torch.randn(tokens, 3, generator=generator)
    return x, own, lost, 0.5 * true


def filled(x: Tensor, own: Tensor, lost: Tensor | None, weights: Tensor, *, bias: bool = False) -> Fit:
    """The fit of sequences of two tokens, one in four held out."""
    fit = Fit.empty(x.shape[1], own.shape[1], bias=bias)
    for first in range(0, len(x), 8):
        rows = slice(first, first + 8)
        pair = None if lost is None else lost[rows].reshape(-1, 2, own.shape[1])
        fit.add(
            x[rows].reshape(-1, 2, x.shape[1]),
            own[rows].reshape(-1, 2, own.shape[1]),
            pair,
            weights[rows].reshape(-1, 2),
            is_held=first // 8 % 4 == 3,
        )
    return fit


def literal(x: np.ndarray, t: np.ndarray, start: np.ndarray, w: np.ndarray, bias: bool, share: float):  # type: ignore[no-untyped-def]
    """The change of columns by weighted ridge regression towards the start, (k, d)."""
    if bias:
        x, t = x - w @ x / w.sum(), t - w @ t / w.sum()
    gram = x.T @ (w[:, None] * x)
    ridge = share * np.trace(gram) / len(gram) * np.eye(len(gram))
    return np.linalg.solve(gram + ridge, x.T @ (w[:, None] * (t - x @ start)))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("ridges", [Ridges(1e-3, 1e-2), Ridges(1.0, 1e2)])
def test_each_part_has_its_own_ridge_towards_the_start(bias: bool, ridges: Ridges) -> None:
    x, own, lost, start = problem(48, mean=3.0)
    weights = torch.rand(48, generator=torch.Generator().manual_seed(2))
    weights[::7] = 0.0  # padding
    fit = filled(x, own, lost, weights, bias=bias)
    columns, chosen = fit.best(start.double(), ridges)
    assert chosen == ridges
    rows = np.array([first // 8 % 4 != 3 for first in range(48)])
    a, b, c, w = (each.double().numpy()[rows] for each in (x, own, lost, weights))
    s = start.double().numpy()
    wanted = (
        s + literal(a, b, s, w, bias, ridges.output) + literal(a, c, np.zeros_like(s), w, bias, ridges.lost)
    )
    np.testing.assert_allclose(columns.numpy(), wanted, rtol=1e-5, atol=1e-5)
    if bias:
        shift = (w @ (b + c) - w @ a @ wanted) / w.sum()
        np.testing.assert_allclose(fit.fitted.offset(columns).numpy(), shift, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bias", [False, True])
def test_the_pair_with_the_least_loss_on_held_out_tokens_is_chosen(bias: bool) -> None:
    x, own, lost, start = problem(64, mean=1.0)
    fit = filled(x, own, lost, torch.ones(64), bias=bias)
    rows = np.array([first // 8 % 4 == 3 for first in range(64)])
    a, b, c = (each.double().numpy()[rows] for each in (x, own, lost))
    if bias:
        a, b, c = (each - each.mean(0) for each in (a, b, c))
    losses = {}
    for pair in product(OUTPUT_RIDGES, ERROR_RIDGES):
        columns, _ = fit.best(start.double(), Ridges(*pair))
        losses[pair] = float(np.square(b + c - a @ columns.numpy()).sum())
        assert fit.improves(start.double(), columns) == (
            losses[pair] < float(np.square(b + c - a @ start.double().numpy()).sum())
        )
    assert fit.chosen(start.double()) == Ridges(*min(losses, key=losses.__getitem__))


def test_noise_that_others_lost_is_not_fitted() -> None:
    """Inputs explain what a matrix sends, and nothing of what earlier layers have lost."""
    generator = torch.Generator().manual_seed(3)
    x, true = torch.randn(64, 24, generator=generator), torch.randn(24, 5, generator=generator)
    lost = 10 * torch.randn(64, 5, generator=generator)
    fit = filled(x, x @ true, lost, torch.ones(64))
    assert fit.chosen(0.5 * true.double()) == Ridges(min(OUTPUT_RIDGES), max(ERROR_RIDGES))


def test_mixtures_of_many_outputs_choose_the_ridges_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(1)
    x, true = torch.randn(64, 20, generator=generator), torch.randn(20, 300, generator=generator)
    own = x @ true + torch.randn(64, 300, generator=generator)
    fit = filled(x, own, x @ torch.randn(20, 300, generator=generator), torch.ones(64))
    mixed = fit.chosen(0.9 * true.double())
    monkeypatch.setattr(moments, "OUTPUTS", 300)
    assert mixed == fit.chosen(0.9 * true.double())


def test_wide_matrices_choose_in_float32_and_solve_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    x, own, lost, start = problem(64, mean=1.0)
    fit = filled(x, own, lost, torch.ones(64))
    columns, ridges = fit.best(start.double())
    monkeypatch.setattr(moments, "WIDE", 6)
    again, same = fit.best(start.double())
    assert ridges == same
    assert torch.equal(columns, again)


def test_without_held_out_tokens_ridges_are_not_tried() -> None:
    fit = Fit.empty(6, 3, bias=False)
    x, own, lost, start = problem(8)
    fit.fitted.add(x, own, lost)
    assert fit.best(start.double())[1] == UNTRIED


def test_inputs_that_are_always_zero_keep_their_columns() -> None:
    fit = Fit(*(SecondMoments(6, 3, bias=False) for _ in range(2)))
    fit.fitted.add(torch.zeros(9, 6), torch.ones(9, 3), torch.ones(9, 3))
    start = torch.randn(6, 3).double()
    assert torch.equal(fit.best(start)[0], start)
