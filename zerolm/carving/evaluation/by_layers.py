"""Networks beside their parent that memory does not hold: all of a text goes through them layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import numpy as np
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from zerolm.architecture import Floats, Ints
from zerolm.carving.evaluation.divergence import SPANS, predicted, surprise_and_divergence
from zerolm.carving.experts.expert_use import experts_of
from zerolm.carving.experts.fewer_experts import AXIS, FewerExperts, expert_layers
from zerolm.carving.experts.masked_parent import send_on
from zerolm.checkpoints import Checkpoint
from zerolm.io.memory import give_back
from zerolm.networks.blocks import Blocks, tokens_at_once
from zerolm.networks.compute import Compute, computed
from zerolm.networks.hooks import stand_ins
from zerolm.networks.opener import mapped_model
from zerolm.networks.roles import layer_list
from zerolm.networks.stream import Stream
from zerolm.progress import Counted, Progress, silent
from zerolm.text.tokens import Tokens

Choice = Callable[[int, Floats], Ints]
"""The experts of a layer that stay, by how many tokens of the text are sent to each (e,)."""
BATCH: Final = 8
"""Sequences of a batch."""


def surprises_by_layers(
    parent: Checkpoint,
    choices: Sequence[Choice],
    children: Sequence[Checkpoint],
    tokens: Tokens,
    running: Compute,
    *,
    progress: Progress = silent,
) -> tuple[Floats, Ints]:
    """Return nats of surprise and of divergence from the parent, of each network and each of n sequences.

    They are (networks, n, spans, 2), summed over the predicted tokens of a sequence in each of ``SPANS``, of
    which there are (n, spans): of the parent, of it with the experts of each of the ``choices`` alone, of the
    children. One layer of one network
    is in memory at a time, in the type of products, and the hidden states of all, on disk where they exceed a
    share of memory. What is stored quantised is dequantised for it.
    """
    streams = _at_the_end(parent, tokens, running, choices, progress)
    for child in children:
        streams += _at_the_end(child, tokens, running, (), progress)
    sums = np.zeros((len(streams), len(tokens), len(SPANS), 2))
    counts = np.zeros((len(tokens), len(SPANS)), np.int64)
    first = 0
    for index, inputs in enumerate(tokens.batches(BATCH)):
        progress("predicting tokens", first, len(tokens))
        rows = range(len(inputs["input_ids"]))
        for place, ours in enumerate(_divergences(streams, index, inputs)):
            sums[place, first : first + len(rows)] = ours
        counts[first : first + len(rows)] = [predicted(_row(inputs, row)) for row in rows]
        first += len(rows)
    return sums, counts


def counts_tokens(parent: Checkpoint, model: PreTrainedModel) -> bool:
    """Return whether experts are called with the numbers that tokens are sent to, and with their gates."""
    layer = expert_layers(parent)[0]
    try:
        experts_of(parent, layer_list(model)[layer], layer)
    except ValueError:
        return False
    return True


def _at_the_end(
    checkpoint: Checkpoint, tokens: Tokens, running: Compute, choices: Sequence[Choice], progress: Progress
) -> list[Stream]:
    """Return the states of all batches behind the last layer of a network, then of it with fewer experts.

    All go through a layer before the next one is read.
    """
    model, batches = computed(mapped_model(checkpoint), running), tokens.batches(BATCH)
    whole, *fewer = streams = [Stream(Blocks(model, batches)) for _ in range(1 + len(choices))]
    for stream in streams:
        stream.before(0)  # embedding lets go of the layer that is held
    depth, mixed = len(layer_list(model)), {*expert_layers(checkpoint)} if choices else set[int]()
    steps = Counted(progress, "running the text through each layer", depth * len(streams), 0)
    for layer in range(depth):
        counts = np.zeros(checkpoint.layout.sizes.get(AXIS, 0))
        with _counting(checkpoint, whole, layer, counts) if layer in mixed else nullcontext():
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
    return streams


@contextmanager
def _counting(parent: Checkpoint, stream: Stream, layer: int, counts: Floats) -> Iterator[None]:
    """Within, tokens that are sent to each expert of a layer are counted, where they are called with them."""
    try:
        experts = experts_of(parent, stream.module(layer), layer)
    except ValueError:
        yield
        return
    blocks, alone = stream.blocks, experts.forward
    masks = iter([blocks.tokens(index).reshape(-1) for index in range(len(blocks.batches))])

    def forward(hidden: Tensor, numbers: Tensor, gates: Tensor) -> Any:
        np.add.at(counts, numbers[next(masks)].cpu().numpy().reshape(-1), 1)
        return alone(hidden, numbers, gates)

    with stand_ins([experts], [forward]):
        yield


def _divergences(streams: Sequence[Stream], index: int, inputs: dict[str, Tensor]) -> Floats:
    """Return surprise and divergence of each network on each sequence of a batch, (networks, b, spans, 2)."""
    sequences, length = inputs["input_ids"].shape
    sums = np.zeros((len(streams), sequences, len(SPANS), 2))
    step = min(tokens_at_once(stream.blocks, sequences) for stream in streams)
    for start in range(0, length - 1, step):
        stop = min(start + step, length - 1)
        part = {name: each[:, start : stop + 1] for name, each in inputs.items()}
        theirs = None
        for place, stream in enumerate(streams):
            states = stream.hidden[index][:, start:stop]
            logits = stream.blocks.finish(index, states).logits.float()
            ours = functional.log_softmax(logits, dim=-1).cpu()
            theirs = ours if theirs is None else theirs
            for row in range(sequences):
                both = ours[row : row + 1], theirs[row : row + 1]
                sums[place, row] += surprise_and_divergence(*both, _row(part, row), first=start)
    return sums


def _row(inputs: dict[str, Tensor], row: int) -> dict[str, Tensor]:
    """Return one sequence of a batch."""
    return {name: each[row : row + 1] for name, each in inputs.items()}
