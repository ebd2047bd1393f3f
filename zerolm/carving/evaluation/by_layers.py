"""Networks beside their parent that memory does not hold: all of a text goes through them layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch.nn import functional

from zerolm.architecture import Floats, Ints
from zerolm.carving.evaluation.divergence import surprise_and_divergence
from zerolm.checkpoints import Checkpoint
from zerolm.io.memory import give_back
from zerolm.networks.blocks import Blocks, tokens_at_once
from zerolm.networks.compute import Compute, computed
from zerolm.networks.opener import mapped_model
from zerolm.networks.roles import layer_list
from zerolm.networks.stream import Stream
from zerolm.progress import Counted, Progress, silent
from zerolm.text.tokens import Tokens

BATCH: Final = 8
"""Sequences of a batch."""


def surprises_by_layers(
    checkpoints: Sequence[Checkpoint], tokens: Tokens, running: Compute, *, progress: Progress = silent
) -> tuple[Floats, Ints]:
    """Return nats of surprise and of divergence from the first, of each network and each of n sequences.

    They are (networks, n, 2), summed over the predicted tokens of a sequence, of which there are (n,). One
    layer of one network is in memory at a time, in the type of products, and the hidden states of all, on
    disk where they exceed a share of memory. What is stored quantised is dequantised for it.
    """
    streams = [_at_the_end(each, tokens, running, progress) for each in checkpoints]
    sums, counts = np.zeros((len(streams), len(tokens), 2)), np.zeros(len(tokens), np.int64)
    first = 0
    for index, inputs in enumerate(tokens.batches(BATCH)):
        progress("predicting tokens", first, len(tokens))
        rows = range(len(inputs["input_ids"]))
        for place, ours in enumerate(_divergences(streams, index, inputs)):
            sums[place, first : first + len(rows)] = ours
        wanted = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"]))[:, 1:]
        counts[first : first + len(rows)] = wanted.bool().sum(1).numpy()
        first += len(rows)
    return sums, counts


def _at_the_end(checkpoint: Checkpoint, tokens: Tokens, running: Compute, progress: Progress) -> Stream:
    """Return the states of all batches behind the last layer of a network."""
    blocks = Blocks(computed(mapped_model(checkpoint), running), tokens.batches(BATCH))
    stream, depth = Stream(blocks), len(layer_list(blocks.model))
    steps = Counted(progress, "running the text through each layer", depth * len(blocks.batches), 0)
    for layer in range(depth):
        for _ in stream.through(layer):
            steps()
    blocks.let_go()
    give_back()
    return stream


def _divergences(streams: Sequence[Stream], index: int, inputs: dict[str, torch.Tensor]) -> Floats:
    """Return surprise and divergence of each network on each sequence of a batch, (networks, b, 2)."""
    sequences, length = inputs["input_ids"].shape
    sums = np.zeros((len(streams), sequences, 2))
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
                one = {name: each[row : row + 1] for name, each in part.items()}
                sums[place, row] += surprise_and_divergence(ours[row : row + 1], theirs[row : row + 1], one)
    return sums
