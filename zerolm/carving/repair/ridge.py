"""Ridge regression from second moments: the output columns that reproduce a target from what is kept.

With inputs x_i (k,) and targets t_i (d,), and W0 the columns that there were,

    W = argmin sum_i ||t_i - W x_i||^2 + lambda ||W - W0||_F^2
      = W0 + (T^T X - W0 X^T X) (X^T X + lambda I)^-1

so a strong ridge leaves the parent's columns as they are. A bias is the column of an input that is always
one, with no ridge on it: that is the same as centring inputs and targets. lambda is a share of the mean
diagonal of X^T X, centred where there is a bias. All that is needed are the sums X^T X and X^T T: the loss on
held-out tokens is a quadratic form in theirs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

import torch
from torch import Tensor

RIDGES: Final = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
"""The ridges tried, as shares of the mean diagonal."""
UNTRIED: Final = 1e-2
"""The ridge where nothing is held out to choose it on."""
OUTPUTS: Final = 256
"""Where there are more outputs, the ridge is chosen on so many random mixtures of them."""
EVERY: Final = 5
"""One sequence in so many is held out."""


class SecondMoments:
    """Sums over tokens, float64: X^T X (k, k), X^T T (k, d), ||T||^2; with a bias the last input is one."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, device: torch.device | None = None) -> None:
        self.bias = bias
        size = inputs + bias
        self.xx = torch.zeros(size, size, dtype=torch.float64, device=device)
        self.xt = torch.zeros(size, outputs, dtype=torch.float64, device=device)
        self.tt = 0.0
        self.count = 0

    def add(self, x: Tensor, t: Tensor) -> None:
        """Add tokens: inputs (n, k), targets (n, d)."""
        x, t = x.to(self.xx), t.to(self.xx)  # float32 products would lose what small variances say
        if self.bias:
            x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)  # (n, k + 1)
        self.xx += _gram(x)
        self.xt.addmm_(x.T, t)
        self.tt += float(t.square().sum())
        self.count += len(x)

    def __add__(self, other: SecondMoments) -> SecondMoments:
        total = SecondMoments.__new__(SecondMoments)
        total.bias = self.bias
        total.xx, total.xt = self.xx + other.xx, self.xt + other.xt
        total.tt, total.count = self.tt + other.tt, self.count + other.count
        return total

    def mixed(self, mix: Tensor) -> SecondMoments:
        """Return the moments of mixtures T mix of the targets, mix (d, m); ||T||^2 is left as it is."""
        other = copy.copy(self)
        other.xt = self.xt @ mix
        return other

    def loss(self, columns: Tensor) -> float:
        """Return mean squared error over tokens, summed over outputs, of columns (k, d)."""
        total = (columns * (self.xx @ columns - 2 * self.xt)).sum()
        return (self.tt + float(total)) / max(self.count, 1)

    def diagonal(self) -> float:
        """Return the mean diagonal of X^T X, centred where there is a bias."""
        squares = self.xx.diagonal()
        if self.bias:
            squares = squares[:-1] - self.xx[-1, :-1].square() / max(self.count, 1)
        return float(squares.mean()) if len(squares) else 0.0

    def solve(self, start: Tensor, share: float) -> Tensor:
        """Return the columns (k, d) for a ridge that pulls towards ``start`` (k, d)."""
        missing = self.xt - self.xx @ start  # (k, d): what the columns do not yet explain
        pulled = self.xx.clone()
        pulled.diagonal()[: len(start) - self.bias] += max(share * self.diagonal(), 1e-300)
        factor, failed = torch.linalg.cholesky_ex(pulled)
        if failed:  # not positive, by rounding or by a bias that says what others do
            solved: Tensor = torch.linalg.solve(pulled, missing)
            return start + solved
        change: Tensor = torch.cholesky_solve(missing, factor)
        return start + change

    def recentred(self, start: Tensor) -> Tensor:
        """Return the columns of ``start`` (k, d) with the bias that makes the mean right."""
        bias = (self.xt[-1] - self.xx[-1, :-1] @ start[:-1]) / max(self.count, 1)  # (d,)
        return torch.cat([start[:-1], bias[None]])


@dataclass(frozen=True, eq=False)
class Fit:
    """The moments of one matrix on the tokens to solve on, and on those held out."""

    solved: SecondMoments
    held: SecondMoments

    @classmethod
    def empty(cls, inputs: int, outputs: int, *, bias: bool, device: torch.device | None = None) -> Fit:
        new, again = (SecondMoments(inputs, outputs, bias=bias, device=device) for _ in range(2))
        return cls(new, again)

    def add(self, x: Tensor, t: Tensor, mask: Tensor | None, first: int) -> None:
        """Add sequences from number ``first`` on: inputs (b, t, k), targets (b, t, d), mask (b, t)."""
        numbers = torch.arange(first, first + len(x), device=x.device)
        wanted = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask.bool()
        out = numbers % EVERY == EVERY - 1  # (b,)
        for moments, sequences in ((self.solved, ~out), (self.held, out)):
            rows = wanted & sequences[:, None]  # (b, t)
            if rows.any():
                moments.add(x[rows], t[rows])

    def best(
        self, start: Tensor, grid: tuple[float, ...] = RIDGES, share: float | None = None
    ) -> tuple[Tensor, float]:
        """Return the columns (k, d), solved on all tokens, and their ridge: ``share`` or the best of some."""
        if share is None:
            share = self.chosen(start, grid)
        return (self.solved + self.held).solve(start, share), share

    def chosen(self, start: Tensor, grid: tuple[float, ...]) -> float:
        """Return the ridge of a grid with the least loss on what is held out."""
        if not self.held.count:
            return UNTRIED
        solved, held = self.solved, self.held
        outputs = start.shape[1]
        if outputs > OUTPUTS:
            generator = torch.Generator().manual_seed(0)
            mix = torch.randn(outputs, OUTPUTS, dtype=torch.float64, generator=generator).to(start)
            start, solved, held = start @ mix, solved.mixed(mix), held.mixed(mix)
        return _least(grid, lambda share: held.loss(solved.solve(start, share)))


def _gram(x: Tensor) -> Tensor:
    """Return X^T X of x (n, k); numpy computes half of it on the CPU."""
    if x.device.type != "cpu":
        return x.T @ x
    values = x.numpy()
    return torch.from_numpy(values.T @ values)


def _least(grid: tuple[float, ...], loss: Callable[[float], float]) -> float:
    """Return the value of an ascending grid with the least loss, of equals the first.

    The loss falls and then rises: halves where it may lie, so that few values are tried.
    """
    losses = cache(loss)
    low, high = 0, len(grid) - 1
    while low < high:
        middle = (low + high) // 2
        if losses(grid[middle]) <= losses(grid[middle + 1]):
            high = middle
        else:
            low = middle + 1
    return grid[low]
