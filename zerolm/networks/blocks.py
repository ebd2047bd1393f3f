"""A model called layer by layer, with the hidden states of one layer in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.networks.roles import layer_list

Batch = Mapping[str, Tensor]
"""What a model is given: ``input_ids`` (b, t) and, where sequences are padded, ``attention_mask`` (b, t)."""


@dataclass(frozen=True)
class Call:
    """What a model hands to one of its layers beside the hidden states: masks, positions, rotations."""

    arguments: tuple[Any, ...]
    named: Mapping[str, Any]


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


class Blocks:
    """The layers of a model as functions of hidden states, for the batches that it was made for.

    The model itself runs only its embeddings, and what follows the last layer. It is put into evaluation
    mode. What the model hands to its layers is kept once for all batches of a shape without padding.
    """

    def __init__(self, model: PreTrainedModel, batches: Sequence[Batch]) -> None:
        self.model = model.train(False)
        self.device = next(model.parameters()).device
        self.batches = [{name: x.to(self.device) for name, x in batch.items()} for batch in batches]
        self._calls: dict[object, list[Call]] = {}

    def embed(self, index: int) -> Tensor:
        """What the first layer gets for a batch, (b, t, d)."""
        found: list[Tensor] = []
        calls: list[Call] = []

        def note(hidden: Tensor, *arguments: Any, **named: Any) -> Tensor:
            found.append(hidden)
            calls.append(Call(arguments, named))
            return hidden

        layers = list(layer_list(self.model))
        with torch.no_grad(), stand_ins(layers, [note] * len(layers)):
            self.model.base_model(**self.batches[index], use_cache=False)
        self._calls.setdefault(self._key(index), calls)
        return found[0]

    def call(self, index: int, layer: int, hidden: Tensor, module: nn.Module | None = None) -> Tensor:
        """What a layer makes of the hidden states (b, t, d) of a batch; ``module`` in its place."""
        if self._key(index) not in self._calls:
            self.embed(index)
        call = self._calls[self._key(index)][layer]
        used = layer_list(self.model)[layer] if module is None else module
        with torch.no_grad():
            out = used(hidden, *call.arguments, **call.named)
        assert isinstance(out, Tensor)
        return out

    def finish(self, index: int, hidden: Tensor) -> Any:
        """What the model returns for a batch whose last layer left these hidden states (b, t, d)."""
        layers = list(layer_list(self.model))
        with torch.no_grad(), stand_ins(layers, [lambda *_, **__: hidden] * len(layers)):
            return self.model(**self.batches[index], use_cache=False)

    def _key(self, index: int) -> object:
        batch = self.batches[index]
        return index if "attention_mask" in batch else tuple(batch["input_ids"].shape)


class Enough(Exception):
    """Raised inside a layer when nothing that follows is wanted."""


@dataclass
class Seen:
    """The last inputs (..., k) and outputs (..., d) of the modules that are watched, by the names given."""

    inputs: dict[str, Tensor] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)


@contextmanager
def watching(modules: Mapping[str, nn.Module], *, until: str | None = None) -> Iterator[Seen]:
    """Within, note what goes in and out of modules; no hook is left behind.

    ``until`` ends the block as soon as that module has been given its input: what would follow is not run.
    """
    seen = Seen()

    def before(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            seen.inputs[name] = arguments[0]
            if name == until:
                raise Enough

        return hook

    def after(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, __: tuple[Tensor, ...], out: Tensor) -> None:
            seen.outputs[name] = out

        return hook

    handles = [module.register_forward_pre_hook(before(name)) for name, module in modules.items()]
    handles += [module.register_forward_hook(after(name)) for name, module in modules.items()]
    try:
        yield seen
    except Enough:
        pass
    finally:
        for handle in handles:
            handle.remove()
