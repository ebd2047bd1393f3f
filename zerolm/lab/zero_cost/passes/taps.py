"""Tensors looked at on their way, and a network that is left as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from torch.overrides import TorchFunctionMode

from zerolm.lab.zero_cost.passes.record import Protocol
from zerolm.networks.batch import Batch
from zerolm.networks.compute import compute_of
from zerolm.networks.network import Linear, Network, Tap

See = Callable[[int, Tensor], None]


@contextmanager
def looking(taps: Sequence[Tap], see: See) -> Iterator[None]:
    """Within, ``see(index, tensor)`` is called whenever a tapped tensor comes by, of several the first."""

    def hook(index: int, _: nn.Module, arguments: Any, *outputs: Any) -> None:
        (value,) = outputs or (arguments,)
        see(index, value[0] if isinstance(value, tuple | list) else value)

    handles = []
    for index, tap in enumerate(taps):
        register = getattr(tap.module, f"register_forward_{'pre_' * (tap.side == 'input')}hook")
        handles.append(register(partial(hook, index)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def last_seen(stack: ExitStack, tap: Tap) -> list[Tensor]:
    """Return a list that holds what last came by, until the stack is left."""
    seen: list[Tensor] = []
    stack.enter_context(looking([tap], lambda _, values: seen.__setitem__(slice(None), [values])))
    return seen


@contextmanager
def entering(network: Network, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Within, the first layer gets ``change(hidden)`` instead of the hidden states (b, t, d)."""

    def hook(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return (change(arguments[0]), *arguments[1:])

    handle = network.layers[0].register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


class SmoothSilu(TorchFunctionMode):
    """Within, silu(x) is x sigmoid(x).

    Torch derives its own silu by another formula when the derivative is derived again, and gradients should
    be the same to the last bit whether or not a curvature is computed, too.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is silu:
            return args[0] * torch.sigmoid(args[0])
        return func(*args, **(kwargs or {}))


def logits_of(network: Network, batch: Batch) -> Tensor:
    """Return the predictions of the network, with the matrix products noted on it."""
    with compute_of(network.module).running():
        logits: Tensor = network.module(batch.inputs, batch.classes)
    return widened(logits)


def gradients_of(value: Tensor, tensors: Sequence[Tensor], **how: Any) -> list[Tensor]:
    """Return the gradients of a value by tensors, zeros by one that it does not depend on."""
    gradients = torch.autograd.grad(value, tensors, allow_unused=True, **how)
    pairs = zip(tensors, gradients, strict=True)
    return [torch.zeros_like(tensor) if gradient is None else gradient for tensor, gradient in pairs]


def by_matrix(network: Network, values: Sequence[Tensor]) -> Iterator[tuple[Linear, Tensor]]:
    """Yield each matrix with its part, (outputs, inputs), of values that lie as the ``weights`` do."""
    by_parameter = {id(weight): value for weight, value in zip(network.weights, values, strict=True)}
    for linear in network.linears:
        yield linear, linear.matrix(by_parameter[id(linear.parameter)])


def widened(values: Tensor) -> Tensor:
    """Return values in bfloat16 as float32, anything else unchanged."""
    return values.float() if values.dtype == torch.bfloat16 else values


@contextmanager
def as_it_was(network: Network, protocol: Protocol, *, train: bool = False) -> Iterator[None]:
    """Within, the network is in this mode, its matrices can be differentiated, and randomness is seeded.

    After it, all of that is as it was before.
    """
    modes = [(module, module.training) for module in network.module.modules()]
    flags = [(weight, weight.requires_grad) for weight in network.weights]
    cuda = network.device.type == "cuda"
    with torch.random.fork_rng(devices=[network.device] if cuda else []), torch.enable_grad():
        torch.default_generator.manual_seed(protocol.seed)
        if cuda:
            with torch.cuda.device(network.device):
                torch.cuda.manual_seed(protocol.seed)
        try:
            network.module.train(train)
            for weight, _ in flags:
                weight.requires_grad_(True)
            yield
        finally:
            for module, training in modes:
                module.training = training
            for weight, flag in flags:
                weight.requires_grad_(flag)
