"""The Hessian of the loss times its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

import torch
from torch import Tensor

from zerolm.networks.batch import Batch
from zerolm.networks.network import Linear, Network
from zerolm.networks.passes.protocol import Protocol
from zerolm.networks.passes.running import as_it_was, entering, last_seen, objective


def run_curvature(
    network: Network, batch: Batch, protocol: Protocol, gradients: Mapping[Linear, Tensor]
) -> dict[Linear, Tensor]:
    """H g of each linear module, (outputs, inputs): g of the batch is constant, H the mean of its parts'."""
    linears = list(network.linears)
    constants = [linear.matrix(gradients[linear]) for linear in linears]  # as the parameters lie
    sums = [torch.zeros_like(constant) for constant in constants]
    with ExitStack() as stack:
        stack.enter_context(as_it_was(network, protocol, train=protocol.faithful))
        stack.enter_context(entering(network, lambda hidden: hidden.detach()))
        final = last_seen(stack, network.final)
        weights = [linear.parameter for linear in linears]
        for part in batch.micro(protocol.parts):
            logits = network.module(part.inputs, part.classes)
            value = objective(protocol, logits, part, final[0])
            grads = torch.autograd.grad(value, weights, create_graph=True, allow_unused=True)
            pairs = [(g, c) for g, c in zip(grads, constants, strict=True) if g is not None]
            product = torch.stack([(g * c).sum() for g, c in pairs]).sum()
            found = torch.autograd.grad(product, weights, allow_unused=True)
            for total, each in zip(sums, found, strict=True):
                if each is not None:
                    total += each / protocol.parts
            del grads, found, pairs, product, value
    return {linear: linear.matrix(total) for linear, total in zip(linears, sums, strict=True)}
