"""The flow of Synflow: what ones become in a network of absolute weights, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from zerolm.lab.zero_cost.passes.record import Protocol
from zerolm.lab.zero_cost.passes.taps import as_it_was, by_matrix, entering, gradients_of, last_seen
from zerolm.networks.batch import Batch
from zerolm.networks.hooks import stand_ins
from zerolm.networks.network import Linear, Network

Flow = dict[Linear, tuple[Tensor, Tensor]]


def run_flow(network: Network, batch: Batch, protocol: Protocol) -> Flow:
    """Return |W| and dR / d|W| of each matrix, (outputs, inputs) each, in float64.

    R is the sum of the logits when the first layer gets ones, (1, t, d), and every parameter its absolute
    value (Synflow, arXiv 2006.05467, algorithm 1); of the batch only its length counts. Buffers stay as
    they are. A layer norm is neither linear nor does it let ones through, so here each norm divides by the
    root mean square of all that comes in, taken as a constant, and scales. In faithful mode norms are what
    they are, and the R of an encoder is the sum of the final hidden states. ``ValueError`` where R is not
    finite.
    """
    module = network.module
    wide: dict[int, Tensor] = {}
    for parameter in module.parameters():
        wide[id(parameter)] = parameter.detach().abs().double().requires_grad_(parameter.requires_grad)
    state = {name: wide[id(parameter)] for name, parameter in _slots(module, "_parameters")}
    state |= {
        name: buffer.double() for name, buffer in _slots(module, "_buffers") if buffer.is_floating_point()
    }
    leaves = [wide[id(weight)].requires_grad_() for weight in network.weights]
    sample = torch.zeros_like(batch.inputs[:1])
    inputs = sample.double() if sample.is_floating_point() else sample
    with ExitStack() as stack:
        stack.enter_context(as_it_was(network, protocol, train=protocol.faithful))
        stack.enter_context(entering(network, torch.ones_like))
        final = last_seen(stack, network.final)
        if not protocol.faithful:
            norms = list(network.norms)
            stack.enter_context(stand_ins(norms, [_scaled(norm) for norm in norms]))
        logits = functional_call(module, state, (inputs,), tie_weights=False)
        hidden = protocol.faithful and network.task == "masked"
        total = final[0].sum() if hidden else logits.sum()
        gradients = gradients_of(total, leaves)
    if not torch.isfinite(total):
        raise ValueError(f"the flow of absolute weights is {total.item()}: it left the range of float64")
    weights = by_matrix(network, [leaf.detach() for leaf in leaves])
    pairs = zip(weights, by_matrix(network, gradients), strict=True)
    return {linear: (weight, gradient) for (linear, weight), (_, gradient) in pairs}


def _slots(module: nn.Module, kind: Literal["_parameters", "_buffers"]) -> Iterator[tuple[str, Tensor]]:
    """Yield every place of a tensor, once, though the module that it is in may have several names."""
    for prefix, part in module.named_modules():
        for name, tensor in getattr(part, kind).items():
            if tensor is not None:
                yield f"{prefix}.{name}".lstrip("."), tensor


def _scaled(norm: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return a norm without its mean and offset, whose divisor is a constant."""

    def forward(x: Tensor) -> Tensor:
        weight = getattr(norm, "weight", None)
        if weight is not None and "Gemma" in type(norm).__name__:  # it stores how far the gain is from 1
            weight = 1 + weight
        size = float(x.detach().square().mean().sqrt()) or 1.0
        return x / size if weight is None else x / size * weight

    return forward
