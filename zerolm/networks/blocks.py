"""A model called layer by layer, with the hidden states of one layer in memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.networks.roles import Layer, layer_list, layer_of, names_of

M = TypeVar("M", bound=nn.Module)

Batch = Mapping[str, Tensor]
"""What a model is given: ``input_ids`` (b, t) and, where sequences are padded, ``attention_mask`` (b, t)."""


@dataclass(frozen=True)
class Call:
    """What a model hands to one of its layers beside the hidden states: masks, positions, rotations."""

    arguments: tuple[Any, ...]
    named: Mapping[str, Any]


def outside_layers(model: PreTrainedModel) -> list[nn.Parameter]:
    """The parameters of a model that are in none of its layers."""
    inside = {id(parameter) for parameter in layer_list(model).parameters()}
    return [parameter for parameter in model.parameters() if id(parameter) not in inside]


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
    mode. What the model hands to its layers is kept once for all batches of a shape without padding. All is
    computed in float32: of a model that is stored in fewer bits, one part at a time is held in float32 (the
    embeddings, one layer, or the head).
    """

    def __init__(self, model: PreTrainedModel, batches: Sequence[Batch]) -> None:
        self.model = model.train(False)
        self.device = next(model.parameters()).device
        self.batches = [{name: x.to(self.device) for name, x in batch.items()} for batch in batches]
        self._calls: dict[object, list[Call]] = {}
        self._held: tuple[object, nn.Module | None] = (None, None)

    def layer(self, number: int) -> Layer:
        """A layer in float32."""
        own = layer_list(self.model)[number]
        return layer_of(names_of(self.model), self._part(number, own, own.parameters()))

    def embed(self, index: int) -> Tensor:
        """What the first layer gets for a batch, (b, t, d)."""
        found: list[Tensor] = []
        calls: list[Call] = []

        def note(hidden: Tensor, *arguments: Any, **named: Any) -> Tensor:
            found.append(hidden)
            calls.append(Call(arguments, named))
            return hidden

        layers = list(layer_list(self.model))
        first = self._part("first", self.model, outside_layers(self.model.base_model))
        with torch.no_grad(), stand_ins(layers, [note] * len(layers)):
            first.base_model(**self.batches[index], use_cache=False)
        self._calls.setdefault(self._key(index), calls)
        return found[0]

    def call(self, index: int, layer: int, hidden: Tensor, module: nn.Module | None = None) -> Tensor:
        """What a layer makes of the hidden states (b, t, d) of a batch; ``module`` in its place."""
        if self._key(index) not in self._calls:
            self.embed(index)
        call = self._calls[self._key(index)][layer]
        used = self.layer(layer).module if module is None else module
        with torch.no_grad():
            out = used(hidden, *call.arguments, **call.named)
        assert isinstance(out, Tensor)
        return out

    def finish(self, index: int, hidden: Tensor) -> Any:
        """What the model returns for a batch whose last layer left these hidden states (b, t, d)."""
        embedding, head = self.model.get_input_embeddings(), self.model.get_output_embeddings()
        unused = embedding.weight if head is None or head.weight is not embedding.weight else None
        used = (parameter for parameter in outside_layers(self.model) if parameter is not unused)
        last = self._part("last", self.model, used)
        skipped = [last.get_input_embeddings(), *layer_list(self.model)]
        with torch.no_grad(), stand_ins(skipped, [lambda *_, **__: hidden] * len(skipped)):
            return last(**self.batches[index], use_cache=False)

    def _part(self, name: object, module: M, used: Iterable[nn.Parameter]) -> M:
        """The module with those of its parameters in float32 that are used; its layers are shared."""
        narrow = [parameter for parameter in used if parameter.dtype != torch.float32]
        if not narrow:
            return module
        if self._held[0] != name:
            self._held = (None, None)  # not two at a time
            layers = layer_list(self.model)
            memo: dict[int, Any] = {id(each): each for each in (layers, *module.parameters())}
            wide = {id(each): nn.Parameter(each.float(), requires_grad=False) for each in narrow}
            self._held = (name, copy.deepcopy(module, memo | wide))
        return cast(M, self._held[1])

    def _key(self, index: int) -> object:
        batch = self.batches[index]
        return index if "attention_mask" in batch else tuple(batch["input_ids"].shape)


class Stream:
    """The hidden states of all batches, (b, t, d) each, on their way from the first layer to the last.

    ``module(layer)`` stands in the place of a layer, else the model's own does. Nothing is run before it is
    asked for; then the states pass through the layers below first.
    """

    def __init__(self, blocks: Blocks, module: Callable[[int], nn.Module] | None = None) -> None:
        self.blocks = blocks
        self.module = module or (lambda number: blocks.layer(number).module)
        self.hidden: list[Tensor] = []
        self.layer = 0

    def before(self, layer: int) -> list[Tensor]:
        """What this layer gets."""
        if not self.hidden:
            self.hidden = [self.blocks.embed(index) for index in range(len(self.blocks.batches))]
        while self.layer < layer:
            for _ in self.through(self.layer):
                pass
        return self.hidden

    def through(
        self, layer: int, watched: Callable[[Layer], Mapping[str, nn.Module]] | None = None
    ) -> Iterator[tuple[int, Tensor, Seen]]:
        """Send batch after batch through this layer: its index, what the layer got, what was seen within.

        ``watched`` names the modules of the layer that are looked at.
        """
        hidden, module = self.before(layer), self.module(layer)
        modules = watched(layer_of(names_of(self.blocks.model), module)) if watched else {}
        for index, states in enumerate(hidden):
            with watching(modules) as seen:
                hidden[index] = self.blocks.call(index, layer, states, module)
            yield index, states, seen
        self.layer = layer + 1


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
