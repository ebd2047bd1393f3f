"""The results of a pass of the loss."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from zerolm.lab.zero_cost.passes.look import Look
from zerolm.networks.network import Linear

WORD: Final = 64
"""Samples whose bits fill one int64."""


@dataclass
class Moments:
    """Over the gradients g (outputs, inputs) of k micro-batches: mean of |g|, variances of g and of |g|.

    Population variances, by Welford's recurrence.
    """

    count: int = 0
    mean: Tensor | None = None
    mean_abs: Tensor | None = None
    squares: Tensor | None = None
    squares_abs: Tensor | None = None

    def add(self, g: Tensor) -> None:
        self.count += 1
        self.mean, self.squares = _welford(g, self.mean, self.squares, self.count)
        self.mean_abs, self.squares_abs = _welford(g.abs(), self.mean_abs, self.squares_abs, self.count)

    @property
    def variance(self) -> Tensor:
        assert self.squares is not None
        return self.squares / self.count

    @property
    def variance_abs(self) -> Tensor:
        assert self.squares_abs is not None
        return self.squares_abs / self.count

    @property
    def magnitude(self) -> Tensor:
        assert self.mean_abs is not None
        return self.mean_abs


def _welford(x: Tensor, mean: Tensor | None, squares: Tensor | None, count: int) -> tuple[Tensor, Tensor]:
    if mean is None or squares is None:
        return x.clone(), torch.zeros_like(x)
    step = x - mean
    mean += step / count
    squares += step * (x - mean)
    return mean, squares


@dataclass
class Activations:
    """Reductions of what comes by in a forward pass, and of its gradients; only those that were asked for.

    By matrix: ``peaks``, mean over samples and outputs of the largest output over tokens; ``squares``, the
    mean square of the outputs; ``fisher``, (by token, by sample): half the mean of (output x its gradient)^2,
    added over outputs, where a sample's tokens are added before squaring in the second. By activated matrix:
    ``codes``, words (ceil(n / 64), t f) whose bit s is whether sample s activates the unit; ``distances``
    (n,), for each sample the agreements of all pairs of tokens. By first FFN matrix: ``covariances`` (d, d)
    of inputs, float64, summed over ``rows``. ``looks``: the numbers of each that a proxy declares, by tap.
    """

    peaks: dict[Linear, float] = field(default_factory=dict)
    squares: dict[Linear, float] = field(default_factory=dict)
    fisher: dict[Linear, tuple[float, float]] = field(default_factory=dict)
    codes: dict[Linear, Tensor] = field(default_factory=dict)
    distances: dict[Linear, Tensor] = field(default_factory=dict)
    covariances: dict[Linear, Tensor] = field(default_factory=dict)
    rows: dict[Linear, int] = field(default_factory=dict)
    looks: dict[Look, list[tuple[float, ...]]] = field(default_factory=dict)


@dataclass
class LossPass:
    """Losses, gradients and activations of one pass; only what was asked for.

    By matrix: ``gradients`` (outputs, inputs) of the batch's loss; ``moments`` over micro-batches;
    ``curvature`` H W (outputs, inputs), the Hessian of the loss by all these matrices times the matrices.
    Gradients by what the first layer gets, (b, t d) a micro-batch, a row a sample: ``jacobian`` of the sum of
    the outputs (in faithful mode of the loss, as released code has it), ``loss_jacobian`` of the loss.
    """

    value: float = math.nan
    samples: int = 0
    tokens: int = 0
    gradients: dict[Linear, Tensor] = field(default_factory=dict)
    moments: dict[Linear, Moments] = field(default_factory=dict)
    curvature: dict[Linear, Tensor] = field(default_factory=dict)
    jacobian: list[Tensor] = field(default_factory=list)
    loss_jacobian: list[Tensor] = field(default_factory=list)
    activations: Activations = field(default_factory=Activations)
