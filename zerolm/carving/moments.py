"""Second moments of many tokens, each with a weight: products in float32, sums in float64 (torch)."""

from __future__ import annotations

import torch
from torch import Tensor


class Moments:
    """Weighted sums over tokens of x x^T (k, k), x t^T (k, d), x (k,) and t (d,).

    Products of numbers far from zero would lose small variances in float32. So inputs and targets are shifted
    by the means of the first tokens; the sums that are returned are those of the tokens as they were.
    ``total`` is the sum of weights, ``count`` the number of tokens.
    """

    def __init__(self, inputs: int, outputs: int = 0, *, device: torch.device | None = None) -> None:
        zeros = torch.zeros(inputs, inputs + outputs, dtype=torch.float64, device=device)
        self._squares, self._crossed = zeros[:, :inputs], zeros[:, inputs:]
        self._x, self._t = (_Mean(zeros.new_zeros(size)) for size in (inputs, outputs))
        self.total, self.count = 0.0, 0

    def add(self, inputs: Tensor, outputs: Tensor | None = None, weights: Tensor | None = None) -> None:
        """Add tokens: inputs (n, k), targets (n, d), weights (n,), which are 1 where there are none."""
        device = self._squares.device
        x = self._x.shifted(inputs.to(device, torch.float32))
        w = x.new_ones(len(x)) if weights is None else weights.to(x)
        scaled = x if weights is None else x * w.sqrt()[:, None]
        self._squares += gram(scaled)
        self._x.sums += (w @ x).double()
        if outputs is not None:
            t = self._t.shifted(outputs.to(device, torch.float32)) * w[:, None]
            self._crossed += x.T @ t
            self._t.sums += t.sum(0, dtype=torch.float64)
        self.total += float(w.sum(dtype=torch.float64))
        self.count += len(x)

    @property
    def inputs(self) -> Tensor:
        """The sum of x, (k,)."""
        return self._x.sums + self.total * self._x.shift

    @property
    def outputs(self) -> Tensor:
        """The sum of t, (d,)."""
        return self._t.sums + self.total * self._t.shift

    @property
    def squares(self) -> Tensor:
        """The sum of x x^T, (k, k)."""
        return self._squares + self._moved(self._x)

    @property
    def crossed(self) -> Tensor:
        """The sum of x t^T, (k, d)."""
        return self._crossed + self._moved(self._t)

    @property
    def centred_squares(self) -> Tensor:
        """The sum of x x^T about the means, (k, k)."""
        return self._squares - torch.outer(self._x.sums, self._x.sums) / (self.total or 1.0)

    @property
    def centred_crossed(self) -> Tensor:
        """The sum of x t^T about the means, (k, d)."""
        return self._crossed - torch.outer(self._x.sums, self._t.sums) / (self.total or 1.0)

    def _moved(self, other: _Mean) -> Tensor:
        """Return what the shifts of x and of another vector y take off the sum of x y^T."""
        crossed = torch.outer(self._x.sums, other.shift) + torch.outer(self._x.shift, other.sums)
        return crossed + self.total * torch.outer(self._x.shift, other.shift)


class _Mean:
    """Weighted ``sums`` (k,) of vectors less a ``shift`` (k,), the mean of the first ones."""

    def __init__(self, sums: Tensor) -> None:
        self.sums, self.shift = sums, torch.zeros_like(sums)
        self.is_set = False

    def shifted(self, vectors: Tensor) -> Tensor:
        """Return vectors (n, k) less the shift."""
        if not self.is_set:
            self.shift, self.is_set = vectors.mean(0).double(), True
        return vectors - self.shift.to(vectors)


def gram(x: Tensor) -> Tensor:
    """Return X^T X (k, k) of x (n, k); on the CPU numpy computes one half of it."""
    if x.device.type != "cpu":
        return x.T @ x
    values = x.numpy()
    return torch.from_numpy(values.T @ values)
