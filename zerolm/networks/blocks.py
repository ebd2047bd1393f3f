"""A model called layer by layer, with the hidden states of one layer in memory."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.networks.hooks import stand_ins
from zerolm.networks.roles import StockLayer, layer_list, layer_of, places_of

M = TypeVar("M", bound=nn.Module)

Inputs = Mapping[str, Tensor]
"""Inputs of a model: ``input_ids`` (b, t) and, where sequences are padded, ``attention_mask`` (b, t)."""


@dataclass(frozen=True)
class Call:
    """Arguments of one of a model's layers beside the hidden states: masks, positions, rotations."""

    arguments: tuple[Any, ...]
    named: Mapping[str, Any]


def outside(model: PreTrainedModel, other: nn.Parameter | None) -> list[nn.Parameter]:
    """Return the parameters of a model that are in none of its layers, but for one ``other``."""
    left_out = {id(parameter) for parameter in (*layer_list(model).parameters(), other)}
    return [parameter for parameter in model.parameters() if id(parameter) not in left_out]


def embedded(embedding: nn.Module, ids: Tensor) -> Tensor:
    """Return the embeddings of token ids, in float32: only the rows that are wanted are in memory."""
    rows, places = torch.unique(ids, return_inverse=True)
    weight = embedding.get_parameter("weight")
    few = copy.deepcopy(embedding, {id(weight): nn.Parameter(weight[rows].float(), requires_grad=False)})
    few.__dict__["padding_idx"] = None  # would be another row now; it matters to gradients only
    vectors: Tensor = few(places)
    return vectors


class Blocks:
    """The layers of a model as functions of hidden states, for the batches that it was made for.

    The model itself runs only its embeddings, and what follows the last layer. It is put into evaluation
    mode. What the model hands to its layers is kept once for all batches of a shape without padding. All is
    computed in float32: of a model that is stored in fewer bits, one layer or the head is held in float32 at
    a time.
    """

    def __init__(self, model: PreTrainedModel, batches: Sequence[Inputs]) -> None:
        self.model = model.train(False)
        self.device = next(model.parameters()).device
        self.batches = [{name: x.to(self.device) for name, x in batch.items()} for batch in batches]
        self._calls: dict[object, list[Call]] = {}
        self._held: tuple[object, nn.Module | None] = (None, None)

    def layer(self, number: int) -> StockLayer:
        """Return a layer in float32."""
        stored = layer_list(self.model)[number]
        return layer_of(places_of(self.model), self._part(number, stored, stored.parameters()))

    def tokens(self, index: int) -> Tensor:
        """Return where a batch has tokens, (b, t) bool."""
        batch = self.batches[index]
        return batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()

    def embed(self, index: int) -> Tensor:
        """Return the input of the first layer for a batch, (b, t, d)."""
        inputs: list[Tensor] = []
        calls: list[Call] = []

        def note(hidden: Tensor, *arguments: Any, **named: Any) -> Tensor:
            inputs.append(hidden)
            calls.append(Call(arguments, named))
            return hidden

        layers, embedding = list(layer_list(self.model)), self.model.get_input_embeddings()
        vectors = embedded(embedding, self.batches[index]["input_ids"])
        first = self._part("first", self.model, outside(self.model.base_model, embedding.weight))
        skipped = [first.get_input_embeddings(), *layers]
        with torch.no_grad(), stand_ins(skipped, [lambda ids: vectors, *[note] * len(layers)]):
            first.base_model(**self.batches[index], use_cache=False)
        self._calls.setdefault(self._key(index), calls)
        return inputs[0]

    def call(
        self,
        index: int,
        layer: int,
        hidden: Tensor,
        module: nn.Module | None = None,
        *,
        gradients: bool = False,
    ) -> Tensor:
        """Return the output of a layer for hidden states (b, t, d) of a batch; ``module`` in its place."""
        if self._key(index) not in self._calls:
            self.embed(index)
        call = self._calls[self._key(index)][layer]
        used = self.layer(layer).module if module is None else module
        with torch.set_grad_enabled(gradients):
            out = used(hidden, *call.arguments, **call.named)
        assert isinstance(out, Tensor)
        return out

    def finish(self, index: int, hidden: Tensor, *, gradients: bool = False) -> Any:
        """Return the output of the model for a batch whose last layer left these hidden states (b, t, d)."""
        return self._finished(index, hidden, [], gradients=gradients)

    def head(self, index: int, read: Tensor, *, gradients: bool = False) -> Any:
        """Return the output of the model for a batch whose last norm sends this (b, t, d) to the head."""
        names = places_of(self.model).modules
        return self._finished(index, read, [names.final] if names.final else [], gradients=gradients)

    def _finished(self, index: int, hidden: Tensor, more: list[str], *, gradients: bool = False) -> Any:
        embedding, head = self.model.get_input_embeddings(), self.model.get_output_embeddings()
        tied = head is not None and head.weight is embedding.weight
        last = self._part("last", self.model, outside(self.model, None if tied else embedding.weight))
        skipped = [last.get_input_embeddings(), *layer_list(self.model)]
        skipped += [last.base_model.get_submodule(name) for name in more]
        with torch.set_grad_enabled(gradients), stand_ins(skipped, [lambda *_, **__: hidden] * len(skipped)):
            return last(**self.batches[index], use_cache=False)

    def _part(self, name: object, module: M, used: Iterable[nn.Parameter]) -> M:
        """Return the module with those of its parameters in float32 that are used; its layers are shared."""
        narrow = [parameter for parameter in used if parameter.dtype != torch.float32]
        if not narrow:
            return module
        if self._held[0] != name:
            self._held = (None, None)  # not two at a time
            layers = layer_list(self.model)
            memo: dict[int, Any] = {id(shared): shared for shared in (layers, *module.parameters())}
            wide = {id(weight): nn.Parameter(weight.float(), requires_grad=False) for weight in narrow}
            self._held = (name, copy.deepcopy(module, memo | wide))
        return cast(M, self._held[1])

    def _key(self, index: int) -> object:
        batch = self.batches[index]
        return index if "attention_mask" in batch else tuple(batch["input_ids"].shape)
