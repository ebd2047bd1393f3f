"""One pass of the loss, in micro-batches: forward, backward and, for the curvature, backward again."""

from __future__ import annotations

import math
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor

from zerolm.lab.zero_cost.passes.record import Clock, Moments, Need, Protocol
from zerolm.lab.zero_cost.passes.reductions import Activations
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
from zerolm.networks.network import Linear, Network

FORWARD: Final = ("outputs", "codes", "distances", "covariances")
BACKWARD: Final = ("gradients", "moments", "fisher", "loss_jacobian", "curvature")
SMALL: Final = 1e-4
"""A gradient of ones below this share of a random one's is nothing but rounding."""


@dataclass
class LossPass:
    """Losses, gradients and activations of one pass; only what was asked for.

    By matrix: ``gradients`` (outputs, inputs) of the batch's loss; ``moments`` over micro-batches;
    ``curvature`` H W (outputs, inputs), the Hessian of the loss by all these matrices times the matrices.
    Gradients by what the first layer gets, (b, t d) a micro-batch, a row a sample: ``jacobian`` of the sum of
    the outputs (in faithful mode of the loss, as released code has it), ``loss_jacobian`` of the loss.
    """

    samples: int
    activations: Activations
    value: float = math.nan
    tokens: int = 0
    gradients: dict[Linear, Tensor] = field(default_factory=dict)
    moments: dict[Linear, Moments] = field(default_factory=dict)
    curvature: dict[Linear, Tensor] = field(default_factory=dict)
    jacobian: list[Tensor] = field(default_factory=list)
    loss_jacobian: list[Tensor] = field(default_factory=list)


def run_loss(
    network: Network, batch: Batch, protocol: Protocol, needs: Collection[Need], clock: Clock
) -> LossPass:
    """Run the pass; ``needs`` are names of ``FORWARD`` and ``BACKWARD``, ``jacobian``, and looks.

    ``ValueError`` where the loss is not finite, or where the gradient of ones is nothing but rounding.
    """
    backward, parts = any(need in needs for need in BACKWARD), batch.micro(protocol.parts)
    activations = Activations(protocol.parts, clock)
    results, entry, losses = LossPass(len(batch), activations), list[Tensor](), list[Tensor]()

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
        activations.watch(network, stack, needs)
        for part in parts:
            with clock.on("forward"):
                logits = logits_of(network, part)
                of_task = protocol.upstream == "task"
                value = loss(logits, part) if of_task else protocol.parts * widened(final[0]).sum()
            if not torch.isfinite(value):
                raise ValueError(f"the loss is {value.item()}, not finite: no gradient says anything then")
            losses.append(value.detach())
            if "jacobian" in needs:
                with clock.on("jacobian"):
                    total = value if protocol.faithful else logits.sum()
                    (rows,) = torch.autograd.grad(total, entry[0], retain_graph=backward)
                    results.jacobian.append(rows.flatten(1))
            if backward:
                _differentiate(value, entry[0], network, protocol, needs, results)
            activations.part += 1
    if not all(bool(torch.isfinite(gradient).all()) for gradient in results.gradients.values()):
        raise ValueError("the gradient of the loss is not finite, though the loss is")
    results.value = float(torch.stack(losses).mean(dtype=torch.float64))
    activations.finish()
    return results


def _differentiate(
    value: Tensor,
    entry: Tensor,
    network: Network,
    protocol: Protocol,
    needs: Collection[Need],
    results: LossPass,
) -> None:
    """Add the derivatives of a micro-batch's loss; faithful moments accumulate gradients."""
    activations, weights = results.activations, network.weights
    clock, count = activations.clock, activations.part + 1
    activations.is_backward = True
    with clock.on("backward"):
        curved = "curvature" in needs
        *gradients, at_entry = gradients_of(value, [*weights, entry], create_graph=curved)
    activations.is_backward = False
    if "loss_jacobian" in needs:
        results.loss_jacobian.append(at_entry.detach().flatten(1))
    if curved:  # H W: the gradient of how the loss changes along the weights
        with clock.on("curvature"):
            pairs = zip(gradients, weights, strict=True)
            along = torch.stack([(gradient * weight.detach()).sum() for gradient, weight in pairs]).sum()
            for linear, product in by_matrix(network, gradients_of(along, weights)):
                total = results.curvature.setdefault(linear, torch.zeros_like(product))
                total += product / protocol.parts
    for linear, gradient in by_matrix(network, [whole.detach() for whole in gradients]):
        with clock.on("gradients"):
            mean = results.gradients.setdefault(linear, torch.zeros_like(gradient))
            mean += (gradient - mean) / count
        if "moments" in needs:
            with clock.on("moments"):
                moments = results.moments.setdefault(linear, Moments())
                moments.add(mean * count if protocol.faithful else gradient)


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
