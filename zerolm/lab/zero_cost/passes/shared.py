"""The passes that the proxies of one network share: each runs once, and only if it is needed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Final

import torch
from torch import Tensor

from zerolm.lab.zero_cost.passes.flow import Flow, run_flow
from zerolm.lab.zero_cost.passes.loss import BACKWARD, FORWARD, LossPass, run_loss
from zerolm.lab.zero_cost.passes.record import Clock, Look, Need, Protocol
from zerolm.lab.zero_cost.passes.reductions import Activations
from zerolm.lab.zero_cost.passes.transfer import Transfer, run_transfer
from zerolm.networks.batch import Batch
from zerolm.networks.network import Linear, Network

COSTS: Final[Mapping[str, tuple[str, ...]]] = {
    **{need: ("forward", need) for need in FORWARD},
    "jacobian": ("forward", "jacobian"),
    **{need: ("forward", "backward", need) for need in BACKWARD},
    "loss_jacobian": ("forward", "backward"),
    "moments": ("forward", "backward", "gradients", "moments"),
    "curvature": ("forward", "backward", "gradients", "curvature"),
    "flow": ("flow",),
    "transfer": ("transfer",),
}
"""What a proxy may need in addition to shapes and weights, and what seconds it is counted for alone."""
KINDS: Final = ("forward", "jacobian", "backward", "curvature", "flow", "transfer")
NEEDS: Final = {
    need: next(kind for kind in reversed(KINDS) if kind in steps) for need, steps in COSTS.items()
}
"""The pass that gives each need."""


def pass_of(need: Need) -> str:
    """Return the pass that gives a need; ``KeyError`` for one that there is not."""
    return "forward" if isinstance(need, Look) else NEEDS[need]


def steps_of(need: Need) -> tuple[str, ...]:
    """Return the names of the steps that take seconds when nothing else is needed."""
    return ("forward", need.name) if isinstance(need, Look) else COSTS[need]


class Passes:
    """The passes through one network with one batch; ``needs`` are what will be asked of them.

    ``projections`` are the matrices, a fused module being several; ``linears`` are the same, but in faithful
    mode a fused module of attention is one matrix, as released code has it. ``seconds`` are those of this
    process, by the names of ``steps_of``.
    """

    def __init__(self, network: Network, batch: Batch, protocol: Protocol, needs: Collection[Need]) -> None:
        self.projections = network.linears
        self.network = network.with_attention_fused() if protocol.faithful else network
        self.batch, self.protocol = batch.to(network.device), protocol
        self.needs = frozenset(needs)
        self._clock = Clock(network.device)

    def run(self) -> None:
        """Run the passes that are needed now, rather than when they are first asked for."""
        kinds = set(map(pass_of, self.needs))
        if kinds - {"flow", "transfer"}:
            _ = self.loss
        if "flow" in kinds:
            _ = self.flow
        if "transfer" in kinds:
            _ = self.transfer

    @property
    def seconds(self) -> Mapping[str, float]:
        return self._clock.seconds

    @cached_property
    def loss(self) -> LossPass:
        """The forward pass of the loss and, where they are needed, its derivatives."""
        return run_loss(self.network, self.batch, self.protocol, self.needs, self._clock)

    @property
    def activations(self) -> Activations:
        """Reductions of what comes by in the forward pass."""
        return self.loss.activations

    def looked(self, look: Look) -> Sequence[tuple[float, ...]]:
        """Return the numbers of what a proxy looks at itself, tap by tap, without taps that saw nothing."""
        return self.activations.looks[look]

    @cached_property
    def flow(self) -> Flow:
        """Absolute weights and the gradients of their flow."""
        with self._clock.on("flow"):
            return run_flow(self.network, self.batch, self.protocol)

    @cached_property
    def transfer(self) -> Transfer:
        """Gaussian states and random directions through each sub-block."""
        with self._clock.on("transfer"):
            return run_transfer(self.network, self.batch, self.protocol)

    @property
    def linears(self) -> tuple[Linear, ...]:
        return self.network.linears

    def weight(self, linear: Linear) -> Tensor:
        """Return a matrix, (outputs, inputs)."""
        return linear.matrix(linear.parameter.detach())

    def gradient(self, linear: Linear) -> Tensor:
        """Return the gradient of the batch's loss by that matrix."""
        return self.loss.gradients[linear]

    def curvature(self, linear: Linear) -> Tensor:
        """Return the Hessian of the loss by all matrices times these, H W, in the place of this one."""
        return self.loss.curvature[linear]


def singular_values(matrix: Tensor) -> Tensor:
    """Return the singular values (min(n, m),) in float64, those below 1e-8 of the largest only roughly.

    They are the roots of the eigenvalues of the smaller Gram matrix, which is several times faster.
    ``ValueError`` where the matrix is not finite.
    """
    wide = matrix.double()
    if not torch.isfinite(wide).all():
        raise ValueError("a matrix that is not finite has no singular values")
    gram = wide @ wide.T if wide.shape[0] <= wide.shape[1] else wide.T @ wide
    values: Tensor = torch.linalg.eigvalsh(gram)
    return values.clamp_min(0).sqrt()


def nuclear(matrix: Tensor) -> float:
    """Return the sum of the singular values."""
    return float(singular_values(matrix).sum())
