"""A model called layer by layer, with the hidden states of one layer in memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.networks.compute import compute_of, held_of
from zerolm.networks.hooks import stand_ins
from zerolm.networks.roles import StockLayer, body_of, layer_list, layer_of, places_of
from zerolm.networks.shared_keys import ARGUMENT, SharedKeys
from zerolm.networks.states import HiddenStates

M = TypeVar("M", bound=nn.Module)

LOGITS: Final = 1 << 24
"""Logits at most that are made at a time (64 MiB, with gradients some five times as much)."""
STATES_HELD: Final = 6
"""Hidden states of all batches that a pass holds at a time, at most."""
INPUTS_OF_LAYERS: Final = "hidden_size_per_layer_input"
"""The field of models whose layers get more of each token than hidden states (gemma4)."""
Head = Callable[[nn.Module, Tensor], Tensor]
"""What takes the place of a head: its logits (b, t, v) by the module and its input (b, t, k)."""
Inputs = Mapping[str, Tensor]
"""Inputs of a model: ``input_ids`` (b, t) and, where sequences are padded, ``attention_mask`` (b, t)."""


@dataclass(frozen=True)
class Call:
    """Arguments of one of a model's layers other than the hidden states: masks, positions, rotations."""

    arguments: tuple[Any, ...]
    named: Mapping[str, Any]


def outside(model: PreTrainedModel, *others: nn.Parameter | None) -> list[nn.Parameter]:
    """Return the parameters of a model that are in none of its layers, but for these ``others``."""
    excluded = {id(parameter) for parameter in (*layer_list(model).parameters(), *others)}
    return [parameter for parameter in model.parameters() if id(parameter) not in excluded]


def embedded(embedding: nn.Module, ids: Tensor, table: Tensor | None = None) -> Tensor:
    """Return the embeddings of token ids, in float32: only the rows that are wanted are in memory.

    ``table`` (v, k) takes the place of the module's rows.
    """
    rows, places = torch.unique(ids, return_inverse=True)
    weight = embedding.get_parameter("weight")
    source = weight if table is None else table
    taken = source[rows.to(source.device)].to(ids.device, torch.float32)
    few = copy.deepcopy(embedding, {id(weight): nn.Parameter(taken, requires_grad=False)}).to(ids.device)
    few.__dict__["padding_idx"] = None  # would be another row now; it matters to gradients only
    vectors: Tensor = few(places)
    return vectors


def tokens_at_once(blocks: Blocks, sequences: int) -> int:
    """Return the number of tokens of each of these sequences that are predicted at a time."""
    return max(1, LOGITS // (sequences * blocks.vocab))


class Blocks:
    """The layers of a model as functions of hidden states, for the batches that it was made for.

    The model itself runs only its embeddings, and what follows the last layer. It is put into evaluation
    mode. What the model hands to its layers is kept once for all batches of a shape without padding, unless
    it depends on the tokens. It is computed as is noted on it (``compute_of``): of a model that is stored
    otherwise, or elsewhere, one layer or the head is held so at a time; on a device as many as half of its
    free memory takes. Where layers read keys of earlier ones these lie behind the hidden states (``keys``).
    """

    def __init__(self, model: PreTrainedModel, batches: Sequence[Inputs]) -> None:
        self.model = model.train(False)
        self.compute = compute_of(model)
        self.device = self.compute.device
        self.batches = [{name: x.to(self.device) for name, x in batch.items()} for batch in batches]
        self._calls: dict[object, list[Call]] = {}
        self._held = held_of(model, self.compute)
        self.keys = SharedKeys.of(layer_list(model))

    def layer(self, number: int) -> StockLayer:
        """Return a layer as it is computed."""
        stored = layer_list(self.model)[number]
        return layer_of(places_of(self.model), self._part(number, stored, stored.parameters(), wide=False))

    @property
    def predicts(self) -> bool:
        return self.model.get_output_embeddings() is not None

    @property
    def vocab(self) -> int:
        return int(self.model.config.vocab_size)

    @property
    def state_bytes(self) -> list[int]:
        """Return the bytes of the hidden states of each batch, in float32."""
        width = int(self.model.config.hidden_size) + self.keys.width
        return [4 * batch["input_ids"].numel() * width for batch in self.batches]

    def states(self) -> HiddenStates:
        """Return a place for hidden states of all batches: on disk where some of them exceed memory."""
        return HiddenStates(on_disk=STATES_HELD * sum(self.state_bytes) > self.compute.limit)

    def tokens(self, index: int) -> Tensor:
        """Return where a batch has tokens, (b, t) bool."""
        batch = self.batches[index]
        return batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()

    def embed(self, index: int, vectors: Tensor | None = None, *, gradients: bool = False) -> Tensor:
        """Return the states before the first layer, (b, t, d), of a batch, or of other ``vectors`` for it."""
        inputs: list[Tensor] = []
        calls: list[Call] = []

        def note(hidden: Tensor, *arguments: Any, **named: Any) -> Any:
            inputs.append(hidden)
            calls.append(Call(arguments, named))
            return self._returned(hidden)

        layers, embedding = list(layer_list(self.model)), self.model.get_input_embeddings()
        if vectors is None:
            vectors = embedded(embedding, self.batches[index]["input_ids"])
        used = outside(body_of(self.model), embedding.weight)
        first = self._part("first", self.model, used, wide=True)
        name = places_of(self.model).modules.final
        norms = [] if name is None else [body_of(first).get_submodule(name)]  # what it sends is not wanted
        skipped = [first.get_input_embeddings(), *norms, *layers]
        forwards = [lambda ids: vectors, *[lambda states: states] * len(norms), *[note] * len(layers)]
        stands = stand_ins(skipped, forwards)
        with torch.set_grad_enabled(gradients), stands:
            body_of(first)(**self.batches[index], use_cache=False)
        self._calls.setdefault(self._key(index), calls)
        return self.keys.behind(inputs[0])

    def call(
        self,
        index: int,
        layer: int,
        hidden: Tensor,
        module: nn.Module | None = None,
        *,
        gradients: bool = False,
    ) -> Tensor:
        """Return the states behind a layer for those (b, t, d) of a batch; ``module`` in its place."""
        if self._key(index) not in self._calls:
            self.embed(index)
        call = self._calls[self._key(index)][layer]
        used = self.layer(layer).module if module is None else module
        shared = self.keys.shared(hidden)
        named = {**call.named, ARGUMENT: shared} if shared else call.named
        with torch.set_grad_enabled(gradients), self.compute.running():
            out = used(self.keys.alone(hidden), *call.arguments, **named)
            out = out[0] if isinstance(out, tuple) else out
            assert isinstance(out, Tensor)
            return self.keys.together(out, shared) if shared else out

    def inputs_of_layer(self, index: int, layer: int) -> Tensor | None:
        """Return a layer's inputs by token other than hidden states, (b, t, p); None in most models.

        The batch has been embedded.
        """
        width, call = getattr(self.model.config, INPUTS_OF_LAYERS, 0), self._calls[self._key(index)][layer]
        tensors = (each for each in (*call.arguments, *call.named.values()) if isinstance(each, Tensor))
        return next((each for each in tensors if each.dim() == 3 and each.shape[-1] == width), None)

    def _returned(self, hidden: Tensor) -> Any:
        return (hidden, None) if places_of(self.model).modules.returns == "tuple" else hidden

    def let_go(self) -> None:
        """Let go of what is held of the model, whoever runs it; it is made again when needed."""
        self._held.let_go()

    def finish(self, index: int, hidden: Tensor, *, head: Head | None = None, gradients: bool = False) -> Any:
        """Return the output of the model for a batch whose last layer outputs these states (b, n, d).

        They are of all its tokens, or of some of them. ``head`` takes the place of the model's.
        """
        return self._finished(index, self.keys.alone(hidden), [], head, gradients=gradients)

    def head(self, index: int, read: Tensor, *, head: Head | None = None, gradients: bool = False) -> Any:
        """Return the output of the model for a batch whose last norm outputs ``read`` (b, t, d) to the head.

        ``head`` takes the place of the model's, whose scaling and caps of logits remain.
        """
        names = places_of(self.model).modules
        return self._finished(index, read, [names.final] if names.final else [], head, gradients=gradients)

    def _finished(
        self,
        index: int,
        hidden: Tensor,
        more: list[str],
        replaced: Head | None,
        *,
        gradients: bool = False,
    ) -> Any:
        embedding, head = self.model.get_input_embeddings(), self.model.get_output_embeddings()
        tied = head is not None and head.weight is embedding.weight
        used = outside(self.model, None if tied else embedding.weight)
        last = self._part("last", self.model, used, wide=True)
        norms = [body_of(last).get_submodule(name) for name in more]
        layers = list(layer_list(self.model))
        nothing = hidden.new_zeros(*hidden.shape[:-1], embedding.weight.shape[1])  # nor is it read
        results: list[Any] = [nothing, *[hidden] * len(norms), *[self._returned(hidden)] * len(layers)]
        skipped = [last.get_input_embeddings(), *norms, *layers]
        forwards: list[Callable[..., Any]] = [lambda *_, out=out, **__: out for out in results]
        if replaced is not None:
            module: nn.Module = last.get_output_embeddings()
            skipped.append(module)
            forwards.append(partial(replaced, module))
        inputs = {name: x[:, : hidden.shape[1]] for name, x in self.batches[index].items()}
        stands = stand_ins(skipped, forwards)
        with torch.set_grad_enabled(gradients), stands, self.compute.wide():
            return last(**inputs, use_cache=False)

    def _part(self, name: object, module: M, used: Iterable[nn.Parameter], *, wide: bool) -> M:
        """Return the module with those of its parameters as they are computed that are used.

        Layers, and what is not used, are shared with the model.
        """
        return self._held.part(name, module, list(used), wide=wide, shared=layer_list(self.model))

    def _key(self, index: int) -> object:
        batch = self.batches[index]
        alone = "attention_mask" in batch or bool(getattr(self.model.config, INPUTS_OF_LAYERS, 0))
        return index if alone else tuple(batch["input_ids"].shape)
