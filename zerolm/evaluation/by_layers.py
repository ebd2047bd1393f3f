"""Readers that memory does not hold, or that are stored quantised: they run layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from zerolm.architecture import Floats, Ints
from zerolm.carving.experts.expert_use import experts_of
from zerolm.carving.experts.fewer_experts import AXIS, FewerExperts, expert_layers
from zerolm.carving.experts.masked_parent import send_on
from zerolm.checkpoints import Checkpoint
from zerolm.evaluation.readers import Reader
from zerolm.io.memory import give_back
from zerolm.networks.blocks import Blocks, tokens_at_once
from zerolm.networks.compute import Compute, computed
from zerolm.networks.hooks import stand_ins
from zerolm.networks.opener import mapped_model
from zerolm.networks.roles import layer_list
from zerolm.networks.stream import Stream
from zerolm.passes.outputs import NextTokens
from zerolm.progress import Counted, Progress

Choice = Callable[[int, Floats], Ints]
"""The kept experts of a layer, by the number of tokens of the text that are routed to each (e,)."""
Batch = dict[str, Tensor]


@dataclass(frozen=True)
class BatchPart:
    """Some ``places`` in the sequences of a batch, by its ``index``: each predicts the next token."""

    index: int
    places: range
    inputs: Batch


@dataclass(frozen=True, eq=False)
class ByLayers(Reader):
    """A reader of parts of batches; states behind the last layer are held, on disk where they are many."""

    stream: Stream

    def predictions(self, passage: BatchPart) -> NextTokens:
        index, places = passage.index, passage.places
        states = self.stream.hidden[index][:, places.start : places.stop]
        logits = self.stream.blocks.finish(index, states).logits.cpu()
        return NextTokens.of(logits, passage.inputs, places)


def parts_of(
    batches: Mapping[str, Sequence[Batch]], readers: Sequence[ByLayers]
) -> dict[str, list[BatchPart]]:
    """Return the parts of batches, by domain, that all readers predict at a time."""
    parts, index = dict[str, list[BatchPart]](), 0
    for domain, several in batches.items():
        parts[domain] = []
        for batch in several:
            sequences, length = batch["input_ids"].shape
            step = min(tokens_at_once(reader.stream.blocks, sequences) for reader in readers)
            places = range(length - 1)
            some = (places[first : first + step] for first in places[::step])
            parts[domain] += [BatchPart(index, each, batch) for each in some]
            index += 1
    return parts


def counts_tokens(parent: Checkpoint, model: PreTrainedModel) -> bool:
    """Return whether experts are called with the indices that tokens are routed to, and with their gates."""
    layer = expert_layers(parent)[0]
    try:
        experts_of(parent, layer_list(model)[layer], layer)
    except ValueError:
        return False
    return True


def read_by_layers(
    checkpoint: Checkpoint,
    batches: Sequence[Batch],
    running: Compute,
    choices: Sequence[Choice] = (),
    *,
    progress: Progress,
) -> list[ByLayers]:
    """Send batches through a network, and through it with each choice of experts; return their readers.

    One layer of it is in memory at a time, in the type of products; what is stored quantised is dequantised
    for it. All go through a layer before the next one is read.
    """
    model = computed(mapped_model(checkpoint), running)
    whole, *fewer = streams = [Stream(Blocks(model, batches)) for _ in range(1 + len(choices))]
    for stream in streams:
        stream.before(0)  # embedding lets go of the layer that is held
    depth, mixed = len(layer_list(model)), {*expert_layers(checkpoint)} if choices else set[int]()
    counted = mixed if choices and counts_tokens(checkpoint, model) else set[int]()
    steps = Counted(progress, "running the text through each layer", depth * len(streams), 0)
    for layer in range(depth):
        counts = np.zeros(checkpoint.layout.sizes.get(AXIS, 0))
        with _counting(checkpoint, whole, layer, counts) if layer in counted else nullcontext():
            whole.before(layer + 1)
        steps()
        for stream, choose in zip(fewer, choices, strict=True):
            if layer in mixed:
                send_on(stream, FewerExperts(checkpoint, {layer: choose(layer, counts)}), layer)
            else:
                stream.before(layer + 1)
            steps()
    whole.blocks.let_go()
    give_back()
    return [ByLayers(stream) for stream in streams]


@contextmanager
def _counting(parent: Checkpoint, stream: Stream, layer: int, counts: Floats) -> Iterator[None]:
    """Within, tokens that are routed to each expert of a layer are counted."""
    experts, blocks = experts_of(parent, stream.module(layer), layer), stream.blocks
    alone = experts.forward
    masks = iter([blocks.tokens(index).reshape(-1) for index in range(len(blocks.batches))])

    def forward(hidden: Tensor, numbers: Tensor, gates: Tensor) -> Any:
        np.add.at(counts, numbers[next(masks)].cpu().numpy().reshape(-1), 1)
        return alone(hidden, numbers, gates)

    with stand_ins([experts], [forward]):
        yield
