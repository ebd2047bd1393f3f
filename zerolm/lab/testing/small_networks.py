"""Small networks and batches that show what a proxy does."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final

import torch

from zerolm.architecture import Architecture
from zerolm.lab.zero_cost.settings import Settings
from zerolm.networks.batch import Batch
from zerolm.networks.build import build
from zerolm.networks.network import Network
from zerolm.spaces import make_space
from zerolm.text.batches import random_source

SETTINGS: Final = Settings(batch=16, length=8, parts=4)
WORDS: Final = 64


@cache
def small_networks() -> tuple[Network, ...]:
    """A llama, and a FlexiBERT of different operations; a few thousand weights each."""
    sizes = {"depth": 2, "hidden": 16, "head_size": 8, "heads": 2, "kv_heads": 1, "ffn": 24}
    llama = make_space("llama", vocab=WORDS).read(sizes)
    return build(llama), build(_encoder())


def _encoder() -> Architecture:
    """A FlexiBERT of 16 wide layers; of few words, for its own 30 thousand would take most of the time."""
    layers = [
        {
            "operation_type": kind,
            "operation_parameter": parameter,
            "num_operation_heads": 2,
            "feed_forward_dimension": 24,
            "num_feed_forward": stacks,
        }
        for kind, parameter, stacks in (("SA", "WMA", 1), ("LT", "DFT", 2), ("DSC", 5, 1))
    ]
    encoder = make_space("flexibert").read({"hidden_size": 16, "encoder_layers": layers})
    words, *others = encoder.ends.embedding_matrices
    return replace(
        encoder, ends=replace(encoder.ends, embedding_matrices=(replace(words, rows=WORDS), *others))
    )


def small_batch(network: Network) -> Batch:
    """Random tokens or images for a network."""
    source = random_source(min(network.classes, 8192))
    return source.batch(network.task, network.classes, SETTINGS.batch, SETTINGS.length, SETTINGS.seed)


def shuffled(batch: Batch) -> Batch:
    """The same micro-batches in another order, and their samples too."""
    generator = torch.Generator().manual_seed(1)
    parts = torch.arange(SETTINGS.batch).chunk(SETTINGS.parts)
    mixed = [parts[i] for i in torch.randperm(len(parts), generator=generator)]
    order = torch.cat([part[torch.randperm(len(part), generator=generator)] for part in mixed])
    return replace(batch, inputs=batch.inputs[order], labels=batch.labels[order])
