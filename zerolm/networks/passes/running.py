"""What every pass needs: hooks that do not outlive it, and a network that is left as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from zerolm.networks.batch import Batch, loss
from zerolm.networks.network import Network, Tap
from zerolm.networks.passes.protocol import Protocol

See = Callable[[int, Tensor], None]


def first(value: Any) -> Tensor:
    """A tensor, or the first of several."""
    found = value[0] if isinstance(value, tuple | list) else value
    assert isinstance(found, Tensor)
    return found


@contextmanager
def looking(taps: Sequence[Tap], see: See) -> Iterator[None]:
    """Within, ``see(index, tensor)`` is called whenever a tapped tensor comes by."""

    def before(index: int) -> Callable[..., None]:
        return lambda _, arguments: see(index, first(arguments))

    def after(index: int) -> Callable[..., None]:
        return lambda _, __, out: see(index, first(out))

    handles = [
        tap.module.register_forward_pre_hook(before(index))
        if tap.side == "input"
        else tap.module.register_forward_hook(after(index))
        for index, tap in enumerate(taps)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def last_seen(stack: ExitStack, tap: Tap) -> list[Tensor]:
    """A list that holds what last came by, until the stack is left."""
    seen: list[Tensor] = []
    stack.enter_context(looking([tap], lambda _, values: seen.__setitem__(slice(None), [values])))
    return seen


def objective(protocol: Protocol, logits: Tensor, part: Batch, final: Tensor) -> Tensor:
    """What a micro-batch is differentiated for; over all of them its mean is the batch's."""
    return loss(logits, part) if protocol.upstream == "task" else protocol.parts * final.sum()


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


@contextmanager
def as_it_was(network: Network, protocol: Protocol, *, train: bool = False) -> Iterator[None]:
    """Within, the network is in this mode, its matrices can be differentiated, and randomness is seeded.

    After it, all of that is as it was before.
    """
    modes = [(module, module.training) for module in network.module.modules()]
    weights = [linear.parameter for linear in network.linears]
    flags = [weight.requires_grad for weight in weights]
    cuda = network.device.type == "cuda"
    with torch.random.fork_rng(devices=[network.device] if cuda else []), torch.enable_grad():
        torch.default_generator.manual_seed(protocol.seed)
        if cuda:
            with torch.cuda.device(network.device):
                torch.cuda.manual_seed(protocol.seed)
        try:
            network.module.train(train)
            for weight in weights:
                weight.requires_grad_(True)
            yield
        finally:
            for module, training in modes:
                module.training = training
            for weight, flag in zip(weights, flags, strict=True):
                weight.requires_grad_(flag)
