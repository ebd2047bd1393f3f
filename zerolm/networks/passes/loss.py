"""One forward and one backward pass of the loss, in micro-batches."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import Final

import torch
from torch import Tensor

from zerolm.networks.batch import Batch
from zerolm.networks.network import Network
from zerolm.networks.passes.protocol import Protocol
from zerolm.networks.passes.record import LossPass, Moments
from zerolm.networks.passes.reductions import Reductions
from zerolm.networks.passes.running import as_it_was, entering, last_seen, objective

FORWARD: Final = ("outputs", "codes", "distances", "covariances", "probabilities")
BACKWARD: Final = ("gradients", "moments", "jacobian", "fisher")
SMALL: Final = 1e-4
"""A gradient of ones below this share of a random one's is nothing but rounding."""


def run_loss(network: Network, batch: Batch, protocol: Protocol, needs: Collection[str]) -> LossPass:
    """Run the pass; ``needs`` are names of ``FORWARD`` and ``BACKWARD``.

    ``ValueError`` where the loss is not finite, or where the gradient of ones is nothing but rounding.
    """
    backward = any(need in needs for need in BACKWARD)
    parts, reductions = batch.micro(protocol.parts), Reductions(network, protocol.parts)
    found = LossPass(samples=len(batch))
    losses: list[Tensor] = []
    entry: list[Tensor] = []

    def enter(hidden: Tensor) -> Tensor:
        entry[:] = [hidden.detach().requires_grad_(backward)]
        found.tokens = hidden.shape[1]
        return entry[0]

    with ExitStack() as stack:
        stack.enter_context(as_it_was(network, protocol, train=protocol.faithful))
        stack.enter_context(torch.set_grad_enabled(backward))
        if backward and protocol.upstream == "ones" and not protocol.faithful:
            _refuse_rounding(network, parts[0])
        stack.enter_context(entering(network, enter))
        final = last_seen(stack, network.final)
        reductions.watch(stack, needs)
        weights = [linear.parameter for linear in network.linears]
        for part in parts:
            logits = network.module(part.inputs, part.classes)
            value = objective(protocol, logits, part, final[0])
            if not torch.isfinite(value):
                raise ValueError(f"the loss is {value.item()}, not finite: no gradient says anything then")
            losses.append(value.detach())
            if backward:
                *grads, at_entry = torch.autograd.grad(value, [*weights, *entry], allow_unused=True)
                _take(found, network, grads, len(losses), needs, accumulate=protocol.faithful)
                if "jacobian" in needs and at_entry is not None:
                    found.jacobian.append(at_entry.flatten(1))
            reductions.part += 1
    if not all(bool(torch.isfinite(gradient).all()) for gradient in found.gradients.values()):
        raise ValueError("the gradient of the loss is not finite, though the loss is")
    found.value = float(torch.stack(losses).mean(dtype=torch.float64))
    reductions.finish(found)
    return found


def _take(
    found: LossPass,
    network: Network,
    grads: Sequence[Tensor | None],
    count: int,
    needs: Collection[str],
    *,
    accumulate: bool,
) -> None:
    """Take in the gradients of micro-batch ``count`` (from 1); released code lets moments accumulate them."""
    for linear, raw in zip(network.linears, grads, strict=True):
        grad = linear.matrix(torch.zeros_like(linear.parameter) if raw is None else raw)
        mean = found.gradients.setdefault(linear, torch.zeros_like(grad))
        mean += (grad - mean) / count
        if "moments" in needs:
            found.moments.setdefault(linear, Moments()).add(mean * count if accumulate else grad)


def _refuse_rounding(network: Network, part: Batch) -> None:
    """``ValueError`` where ones as upstream give gradients that a random upstream shows to be rounding."""
    with ExitStack() as stack:
        final = last_seen(stack, network.final)
        network.module(part.inputs, part.classes)
    hidden, weights = final[0], [linear.parameter for linear in network.linears]
    sizes = []
    for upstream in (torch.ones_like(hidden), torch.randn_like(hidden)):
        grads = torch.autograd.grad(hidden, weights, upstream, retain_graph=True, allow_unused=True)
        sizes.append(math.sqrt(math.fsum(float(g.double().square().sum()) for g in grads if g is not None)))
    if sizes[0] < SMALL * sizes[1]:
        raise ValueError(
            f"the gradient of ones through the final layer norm is zero but for rounding ({sizes[0]:.1e} "
            f"against {sizes[1]:.1e} of a random upstream): take the task's loss, or --mode faithful"
        )
