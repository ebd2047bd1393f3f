"""Second moments of many tokens, each with a weight: products in float32, sums in float64 (torch)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class TokenSums:
    """Weighted sums over tokens of x x^T (k, k), x t^T (k, d), x (k,) and t (d,), centred on request.

    Products of numbers far from zero would lose small variances in float32. So centred sums shift inputs and
    targets by the means of the first tokens, which does not change the result. ``total`` is the sum of
    weights, ``count`` the number of tokens.
    """

    def __init__(
        self, inputs: int, outputs: int = 0, *, centred: bool = False, device: torch.device | None = None
    ) -> None:
        self.centred = centred
        zeros = torch.zeros(inputs + outputs, dtype=torch.float64, device=device)
        self._squares, self._crossed = zeros.new_zeros(inputs, inputs), zeros.new_zeros(inputs, outputs)
        self._x, self._t = _Mean(zeros[:inputs]), _Mean(zeros[inputs:])
        self.total, self.count = 0.0, 0

    def add(self, inputs: Tensor, outputs: Tensor | None = None, weights: Tensor | None = None) -> None:
        """Add tokens: inputs (n, k), targets (n, d), weights (n,), by default 1 for each token."""
        device = self._squares.device
        x = inputs.to(device, torch.float32)
        x = self._x.shifted(x) if self.centred else x
        w = x.new_ones(len(x)) if weights is None else weights.to(x)
        root = w.sqrt()[:, None]
        scaled = x if weights is None else x * root
        self._squares += gram(scaled)
        if outputs is not None:
            t = outputs.to(device, torch.float32)
            t = self._t.shifted(t) if self.centred else t
            self._crossed += scaled.T @ (t * root)
            self._t.sums += (w @ t).double()
        self._x.sums += (w @ x).double()
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
        if not self.centred:
            return self._squares
        return self._squares - torch.outer(self._x.sums, self._x.sums) / (self.total or 1.0)

    @property
    def crossed(self) -> Tensor:
        """The sum of x t^T, (k, d)."""
        if not self.centred:
            return self._crossed
        return self._crossed - torch.outer(self._x.sums, self._t.sums) / (self.total or 1.0)


class _Mean:
    """Weighted ``sums`` (k,) of vectors minus a ``shift`` (k,), the mean of the first ones."""

    def __init__(self, sums: Tensor) -> None:
        self.sums, self.shift = sums.clone(), torch.zeros_like(sums)
        self.is_set = False

    def shifted(self, vectors: Tensor) -> Tensor:
        """Return vectors (n, k) minus the shift."""
        if not self.is_set:
            self.shift, self.is_set = vectors.mean(0).double(), True
        return vectors - self.shift.to(vectors)


def gram(x: Tensor) -> Tensor:
    """Return X^T X (k, k) of x (n, k); on the CPU numpy computes one half of it."""
    if x.device.type != "cpu":
        return x.T @ x
    values = x.numpy()
    with np.errstate(over="ignore", invalid="ignore"):  # the solver rejects what is not finite
        return torch.from_numpy(values.T @ values)
