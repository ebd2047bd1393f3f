"""What the proxies of one network share: each pass runs once, and only if it is needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Final, TypeVar

import torch
from torch import Tensor

from zerolm.networks.batch import Batch
from zerolm.networks.network import Linear, Network
from zerolm.networks.passes.curvature import run_curvature
from zerolm.networks.passes.flow import Flow, run_flow
from zerolm.networks.passes.loss import BACKWARD, FORWARD, run_loss
from zerolm.networks.passes.protocol import Protocol
from zerolm.networks.passes.record import LossPass
from zerolm.networks.passes.transfer import Transfer, run_transfer

NEEDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(FORWARD, "forward"),
    **dict.fromkeys(BACKWARD, "backward"),
    "flow": "flow",
    "curvature": "curvature",
    "transfer": "transfer",
}
"""What a proxy may need beside shapes and weights, and the pass that gives it."""
OWNER: Final[Mapping[str, str]] = {
    need: "loss" if kind in ("forward", "backward") else kind for need, kind in NEEDS.items()
}
"""The attribute of ``Passes`` that holds what is needed."""
T = TypeVar("T")


class Passes:
    """The passes through one network with one batch; ``needs`` are what will be asked of them.

    ``seconds`` are those that each pass took, by its name in ``NEEDS``; ``forward`` and ``backward`` are one
    pass, and its time stands under both.
    """

    def __init__(self, network: Network, batch: Batch, protocol: Protocol, needs: Collection[str]) -> None:
        self.network, self.batch, self.protocol = network, batch.to(network.device), protocol
        self.needs = frozenset(needs) | ({"gradients"} if "curvature" in needs else set())
        self.seconds: dict[str, float] = {}
        self._nuclear: dict[tuple[str, Linear], float] = {}

    def run(self) -> None:
        """Run the passes that are needed now, rather than when they are first asked for."""
        for name in ("loss", "flow", "curvature", "transfer"):
            if any(name == OWNER[need] for need in self.needs):
                getattr(self, name)

    @cached_property
    def loss(self) -> LossPass:
        """The forward pass and, where it is needed, the backward pass of the loss."""
        found = self._timed("forward", lambda: run_loss(self.network, self.batch, self.protocol, self.needs))
        self.seconds["backward"] = self.seconds["forward"]
        return found

    @cached_property
    def flow(self) -> Flow:
        """Absolute weights and the gradients of their flow."""
        return self._timed("flow", lambda: run_flow(self.network, self.batch, self.protocol))

    @cached_property
    def curvature(self) -> dict[Linear, Tensor]:
        """The Hessian times the gradient."""
        gradients = self.loss.gradients
        return self._timed(
            "curvature", lambda: run_curvature(self.network, self.batch, self.protocol, gradients)
        )

    @cached_property
    def transfer(self) -> Transfer:
        """Gaussian states and random directions through each sub-block."""
        return self._timed("transfer", lambda: run_transfer(self.network, self.batch, self.protocol))

    @property
    def linears(self) -> tuple[Linear, ...]:
        return self.network.linears

    def weight(self, linear: Linear) -> Tensor:
        """The matrix of a linear module, (outputs, inputs)."""
        return linear.matrix(linear.parameter.detach())

    def gradient(self, linear: Linear) -> Tensor:
        """The gradient of the batch's loss by that matrix."""
        return self.loss.gradients[linear]

    def nuclear_weight(self, linear: Linear) -> float:
        """The sum of the singular values of the weights."""
        return self._once("weight", linear, lambda: self.weight(linear))

    def nuclear_gradient(self, linear: Linear) -> float:
        """The same of the gradient."""
        return self._once("gradient", linear, lambda: self.gradient(linear))

    def _once(self, kind: str, linear: Linear, matrix: Callable[[], Tensor]) -> float:
        if (kind, linear) not in self._nuclear:
            self._nuclear[kind, linear] = nuclear(matrix())
        return self._nuclear[kind, linear]

    def _timed(self, name: str, run: Callable[[], T]) -> T:
        start = time.perf_counter()
        found = run()
        if self.network.device.type == "cuda":
            torch.cuda.synchronize(self.network.device)
        self.seconds[name] = time.perf_counter() - start
        return found


def singular_values(matrix: Tensor) -> Tensor:
    """Singular values (min(n, m),) in float64, those below 1e-8 of the largest only roughly.

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
    """The sum of the singular values."""
    return float(singular_values(matrix).sum())
