"""One pass of the loss, in micro-batches: forward, backward and, for the curvature, backward again."""

from __future__ import annotations

import math
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from zerolm.lab.zero_cost.passes.clock import Clock
from zerolm.lab.zero_cost.passes.record import LossPass, Moments, Need, Protocol
from zerolm.lab.zero_cost.passes.reductions import Reductions
from zerolm.lab.zero_cost.passes.taps import (
    SmoothSilu,
    as_it_was,
    by_matrix,
    entering,
    gradients_of,
    last_seen,
    logits_of,
    widened,
)
from zerolm.networks.batch import Batch, loss
from zerolm.networks.network import Network

FORWARD: Final = ("outputs", "codes", "distances", "covariances")
BACKWARD: Final = ("gradients", "moments", "fisher", "loss_jacobian", "curvature")
SMALL: Final = 1e-4
"""A gradient of ones below this share of a random one's is nothing but rounding."""


def run_loss(
    network: Network, batch: Batch, protocol: Protocol, needs: Collection[Need], clock: Clock
) -> LossPass:
    """Run the pass; ``needs`` are names of ``FORWARD`` and ``BACKWARD``, ``jacobian``, and looks.

    ``ValueError`` where the loss is not finite, or where the gradient of ones is nothing but rounding.
    """
    backward = any(need in needs for need in BACKWARD)
    parts, results, entry = batch.micro(protocol.parts), LossPass(samples=len(batch)), list[Tensor]()
    reductions = Reductions(network, protocol.parts, clock, results.activations)
    derivatives = _Derivatives(network, protocol, needs, clock, results)
    losses: list[Tensor] = []

    def enter(hidden: Tensor) -> Tensor:
        entry[:] = [hidden.detach().requires_grad_(torch.is_grad_enabled())]
        results.tokens = hidden.shape[1]
        return entry[0]

    with ExitStack() as stack:
        stack.enter_context(as_it_was(network, protocol, train=protocol.faithful))
        stack.enter_context(torch.set_grad_enabled(backward or "jacobian" in needs))
        stack.enter_context(SmoothSilu())
        if backward and protocol.upstream == "ones" and not protocol.faithful:
            _refuse_rounding(network, parts[0])
        stack.enter_context(entering(network, enter))
        final = last_seen(stack, network.final)
        reductions.watch(stack, needs)
        for part in parts:
            with clock.on("forward"):
                logits = logits_of(network, part)
                of_task = protocol.upstream == "task"
                value = loss(logits, part) if of_task else protocol.parts * widened(final[0]).sum()
            if not torch.isfinite(value):
                raise ValueError(f"the loss is {value.item()}, not finite: no gradient says anything then")
            losses.append(value.detach())
            if "jacobian" in needs:
                derivatives.of_outputs(value if protocol.faithful else logits.sum(), entry[0], keep=backward)
            if backward:
                with reductions.backward():
                    gradients = derivatives.of_loss(value, entry[0])
                derivatives.take(gradients, len(losses))
            reductions.part += 1
    if not all(bool(torch.isfinite(gradient).all()) for gradient in results.gradients.values()):
        raise ValueError("the gradient of the loss is not finite, though the loss is")
    results.value = float(torch.stack(losses).mean(dtype=torch.float64))
    reductions.finish()
    return results


@dataclass(frozen=True, eq=False)
class _Derivatives:
    """The derivatives of a pass under way, added to ``results``."""

    network: Network
    protocol: Protocol
    needs: Collection[Need]
    clock: Clock
    results: LossPass

    def of_outputs(self, total: Tensor, entry: Tensor, *, keep: bool) -> None:
        """Add the rows of the Jacobian; ``keep`` the graph for another derivative."""
        with self.clock.on("jacobian"):
            (rows,) = torch.autograd.grad(total, entry, retain_graph=keep)
            self.results.jacobian.append(rows.flatten(1))

    def of_loss(self, value: Tensor, entry: Tensor) -> list[Tensor]:
        """Return the gradients of a micro-batch's loss as the parameters lie."""
        with self.clock.on("backward"):
            curved = "curvature" in self.needs
            *gradients, at_entry = gradients_of(value, [*self.network.weights, entry], create_graph=curved)
        if "loss_jacobian" in self.needs:
            self.results.loss_jacobian.append(at_entry.detach().flatten(1))
        return gradients

    def take(self, gradients: list[Tensor], count: int) -> None:
        """Take in the gradients of micro-batch ``count``, from 1; faithful moments accumulate them."""
        if "curvature" in self.needs:
            with self.clock.on("curvature"):
                self._curve(gradients)
        for linear, gradient in by_matrix(self.network, [whole.detach() for whole in gradients]):
            with self.clock.on("gradients"):
                mean = self.results.gradients.setdefault(linear, torch.zeros_like(gradient))
                mean += (gradient - mean) / count
            if "moments" in self.needs:
                with self.clock.on("moments"):
                    moments = self.results.moments.setdefault(linear, Moments())
                    moments.add(mean * count if self.protocol.faithful else gradient)

    def _curve(self, gradients: list[Tensor]) -> None:
        """Add H W of a micro-batch: the gradient of how the loss changes along the weights."""
        weights = self.network.weights
        pairs = zip(gradients, weights, strict=True)
        along = torch.stack([(gradient * weight.detach()).sum() for gradient, weight in pairs]).sum()
        for linear, product in by_matrix(self.network, gradients_of(along, weights)):
            total = self.results.curvature.setdefault(linear, torch.zeros_like(product))
            total += product / self.protocol.parts


def _refuse_rounding(network: Network, part: Batch) -> None:
    """``ValueError`` where ones as upstream give gradients that a random upstream shows to be rounding."""
    with ExitStack() as stack:
        final = last_seen(stack, network.final)
        logits_of(network, part)
    hidden, sizes = final[0], []
    for upstream in (torch.ones_like(hidden), torch.randn_like(hidden)):
        grads = gradients_of(hidden, network.weights, grad_outputs=upstream, retain_graph=True)
        sizes.append(math.sqrt(math.fsum(float(g.double().square().sum()) for g in grads)))
    if sizes[0] < SMALL * sizes[1]:
        raise ValueError(
            f"gradient of ones through the final norm is zero but for rounding ({sizes[0]:.1e}, "
            f"{sizes[1]:.1e} of a random upstream): give --mode faithful or the task loss"
        )
