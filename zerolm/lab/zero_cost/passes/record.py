"""How passes are run, what they are asked for, and the results of a pass of the loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from torch import Tensor

from zerolm.lab.zero_cost.result import Mode, Upstream
from zerolm.networks.network import Linear, Network, Tap

WORD: Final = 64
"""Samples whose bits fill one int64."""


@dataclass(frozen=True)
class Protocol:
    """``sane`` is what the papers mean, in evaluation mode; ``faithful`` what released code computes.

    ``upstream`` is what gradients come from: the loss of the task, or the sum of the final hidden states
    (``ones``), which is constant behind a layer norm. The batch is passed in ``parts`` micro-batches.
    ``seed`` draws dropout masks (faithful mode trains), Gaussian inputs and random directions.
    """

    mode: Mode = "sane"
    upstream: Upstream = "task"
    parts: int = 8
    seed: int = 0

    @property
    def faithful(self) -> bool:
        return self.mode == "faithful"


@dataclass(frozen=True)
class Look:
    """A need of the forward pass that is declared next to its proxy: numbers of tensors on their way.

    ``reduce(tensor)`` gives numbers of each tensor at ``taps(network)``, such as hidden states (b, t, d);
    ``passes.looked(look)`` has their means over micro-batches, tap by tap. Two of one ``name`` are the same.
    """

    name: str
    taps: Callable[[Network], Sequence[Tap]] = field(compare=False)
    reduce: Callable[[Tensor], Sequence[float]] = field(compare=False)

    def __str__(self) -> str:
        return self.name


Need = str | Look
"""A name of ``NEEDS``, or what a proxy looks at itself."""


@dataclass
class Spread:
    """The mean and the population variance of tensors that come one by one, by Welford's recurrence."""

    count: int = 0
    mean: Any = 0.0
    squares: Any = 0.0

    def add(self, x: Tensor) -> None:
        self.count += 1
        step = x - self.mean
        self.mean += step / self.count
        self.squares += step * (x - self.mean)

    @property
    def variance(self) -> Tensor:
        variance: Tensor = self.squares / self.count
        return variance


@dataclass
class Moments:
    """Over the gradients g (outputs, inputs) of micro-batches: those of g, and of |g|."""

    signed: Spread = field(default_factory=Spread)
    absolute: Spread = field(default_factory=Spread)

    def add(self, g: Tensor) -> None:
        self.signed.add(g)
        self.absolute.add(g.abs())


@dataclass
class RowSums:
    """The number of rows (n, d), their sum (d,) and that of their squares (d, d), in float64."""

    count: int = 0
    total: Any = 0.0
    second: Any = 0.0

    def add(self, states: Tensor) -> None:
        """Add the rows of states (..., d)."""
        rows = states.detach().flatten(0, -2).double()
        self.count += len(rows)
        self.total = self.total + rows.sum(0)
        self.second = self.second + rows.T @ rows


@dataclass
class Activations:
    """Reductions of what comes by in a forward pass, and of its gradients; only those that were asked for.

    By matrix: ``outputs``, (mean over samples and outputs of the largest output over tokens, mean square);
    ``fisher``, (by token, by sample): half the mean of (output x its gradient)^2, added over outputs, where a
    sample's tokens are added before squaring in the second. By activated matrix: ``codes``, words
    (ceil(n / 64), t f) whose bit s is whether sample s activates the unit; ``distances`` (n,), for each
    sample the agreements of all pairs of tokens. By first FFN matrix: ``covariances`` (d, d) of inputs,
    float64, summed over ``rows``. ``looks``: the numbers of each that a proxy declares, by tap.
    """

    outputs: dict[Linear, tuple[float, ...]] = field(default_factory=dict)
    fisher: dict[Linear, tuple[float, ...]] = field(default_factory=dict)
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
