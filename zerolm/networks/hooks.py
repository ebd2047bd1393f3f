"""Modules that are looked at, or stood in for, while a network runs; nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from transformers.pytorch_utils import Conv1D

BLOCK: Final = 32
LARGEST: Final = 127
TINY: Final = 1e-30


@contextmanager
def stand_ins(modules: Sequence[nn.Module], forwards: Sequence[Callable[..., Any]]) -> Iterator[None]:
    """Within, calling ``modules[i]`` calls ``forwards[i]``; after it the modules are as they were."""
    for module, forward in zip(modules, forwards, strict=True):
        module.__dict__["forward"] = forward
    try:
        yield
    finally:
        for module in modules:
            del module.__dict__["forward"]


class Enough(Exception):
    """Raised inside a layer when nothing that follows is wanted."""


@dataclass
class Seen:
    """The last inputs (..., k) and outputs (..., d) of the modules that are watched, by the names given."""

    inputs: dict[str, Tensor] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)


@contextmanager
def watching(
    modules: Mapping[str, nn.Module], states: Tensor | None = None, *, until: str | None = None
) -> Iterator[Seen]:
    """Within, note what goes in and out of modules for ``states`` (b, t, d); no hook is left behind.

    Modules that are given all tokens in a row, (b t, k), as in mixtures of experts, are seen as (b, t, k).
    ``until`` ends the block as soon as that module has been given its input: what would follow is not run.
    """
    seen = Seen()

    def before(name: str, _: nn.Module, arguments: tuple[Tensor, ...]) -> Tensor:
        seen.inputs[name], passed = _by_sequence(arguments[0], states)
        if name == until:
            raise Enough
        return passed

    def after(name: str, _: nn.Module, __: tuple[Tensor, ...], out: Tensor) -> Tensor:
        seen.outputs[name], passed = _by_sequence(out, states)
        return passed.clone()  # some classes add to it in place

    handles = [module.register_forward_pre_hook(partial(before, name)) for name, module in modules.items()]
    handles += [module.register_forward_hook(partial(after, name)) for name, module in modules.items()]
    try:
        yield seen
    except Enough:
        pass
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def rounded_inputs() -> Iterator[None]:
    """Within, linear modules read activations in 8 bits, 32 with one scale, as readers of quantised files do.

    Inputs whose length is no multiple of 32 stay as they are.
    """

    def hook(module: nn.Module, arguments: tuple[Tensor, ...]) -> Any:
        if not isinstance(module, nn.Linear | Conv1D) or arguments[0].shape[-1] % BLOCK:
            return None
        blocks = arguments[0].reshape(*arguments[0].shape[:-1], -1, BLOCK)
        scale = blocks.abs().amax(-1, keepdim=True).clamp(min=TINY) / LARGEST
        return ((blocks / scale).round() * scale).flatten(-2), *arguments[1:]

    handle = register_module_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def _by_sequence(tokens: Tensor, states: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return tokens as (b, t, k), and as they were, made of that: gradients pass through both."""
    if states is None or tokens.shape[:-1] == states.shape[:-1]:
        return tokens, tokens
    seen = tokens.view(*states.shape[:-1], -1)
    return seen, seen.view(tokens.shape)
