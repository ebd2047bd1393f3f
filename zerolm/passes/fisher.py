"""Second moments of what a loss feels, from one pass forward and back through a parent (torch).

For a y drawn from the parent's own predictions let G be the gradient of -log p(y) in an output. An error e of
that output costs 1/2 e^T F e to second order, where F, the mean of G G^T over tokens, is the Fisher
information. Of what all output matrices add to the stream one F is kept, and how much more or less each of
them feels: with an F of its own for each a choice of units is hardly better, and memory would not hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from zerolm.architecture import Floats
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.networks.blocks import Blocks
from zerolm.networks.pooling import MEAN, TokenPooling
from zerolm.networks.roles import StockLayer, layer_list
from zerolm.passes.token_sums import gram
from zerolm.passes.walk import (
    Accumulator,
    Felt,
    Reading,
    normalised,
    readers_and_writers,
    readings_of,
    walk,
    writers,
)
from zerolm.progress import Progress, silent
from zerolm.text.tokens import Tokens

FISHER_TOKENS: Final = 1 << 13
"""Tokens at most, of sequences evenly spread."""
FISHER_BATCH: Final = 2
WEIGHING: Final = "computing Fisher information"
WIDE: Final = 512
"""Of a hidden size from this on, second moments of the stream are products in float32."""
OUTPUT_ROLES: Final = ("o", "down")
STREAM: Final = ("energy", "metric", "last")


@dataclass(frozen=True, eq=False)
class Fisher:
    """Second moments over all tokens of a parent with hidden size d.

    ``outputs`` (d, d) is F of what output matrices add, the mean over all of them; ``shares`` (layers, 2) are
    the traces of what ``o`` and ``down`` of a layer feel, in units of its trace. ``first`` (layers, 2) are
    the squared gradients of the first tokens of windows in units of the mean of the others', None of an
    encoder: these are not in F, for attention of all others rests on them. ``stream`` has sums over all
    norms, where the stream can be narrowed: of the normalised stream (``energy``), of what is felt of it
    (``metric``), and of the first before the head alone (``last``), (d, d) each.
    """

    outputs: Floats
    shares: Floats
    stream: Mapping[str, Floats]
    first: Floats | None = None

    @cached_property
    def _root(self) -> Floats:
        values, vectors = np.linalg.eigh(self.outputs)
        root: Floats = vectors * np.sqrt(np.maximum(values, 0.0))
        return root

    def first_token(self, layer: int, role: str) -> float | None:
        """Return the squared gradient of first tokens, in units of the others', behind ``o`` or ``down``."""
        return None if self.first is None else float(self.first[layer, OUTPUT_ROLES.index(role)])

    def root(self, layer: int, role: str) -> Floats:
        """Return R (d, d) with F = R R^T for the output of ``o`` or ``down`` of a layer."""
        root: Floats = self._root * np.sqrt(self.shares[layer, OUTPUT_ROLES.index(role)])
        return root


def fisher(
    model: PreTrainedModel,
    tokens: Tokens,
    *,
    with_stream: bool,
    pooling: TokenPooling = MEAN,
    progress: Progress = silent,
    cache: ArrayCache = ArrayCache(),  # noqa: B008
) -> Fisher:
    """Return what the loss feels of all outputs, and ``with_stream`` also of the stream.

    The norms have to be root mean squares then. An encoder's embeddings are pooled by ``pooling``. Hidden
    states of a few batches are in memory, one of each layer. Sums that are in the ``cache`` are gone on with.
    Raises ``ValueError`` where a gradient is not finite.
    """
    blocks = fisher_blocks(model, tokens)
    sums = FisherSums(blocks, with_stream=with_stream)
    walk(
        blocks, {"fisher": sums}, cache, WEIGHING, reads_head=with_stream, pooling=pooling, progress=progress
    )
    return sums.fisher(blocks)


def fisher_blocks(model: PreTrainedModel, tokens: Tokens) -> Blocks:
    """Return the network with the tokens that what its loss feels is computed on."""
    return Blocks(model, tokens.most(FISHER_TOKENS).filled(FISHER_BATCH))


class FisherSums(Accumulator):
    """The sums of Fisher information of all outputs, and ``with_stream`` of the stream."""

    def __init__(self, blocks: Blocks, *, with_stream: bool) -> None:
        depth, hidden = len(layer_list(blocks.model)), int(blocks.model.config.hidden_size)
        self.with_stream = with_stream
        self.sums: Arrays = {"outputs": np.zeros((hidden, hidden))}
        self.sums |= {name: np.zeros((depth, len(OUTPUT_ROLES))) for name in ("shares", "first")}
        self.sums |= {name: np.zeros((hidden, hidden)) for name in STREAM if with_stream}

    @property
    def arrays(self) -> Arrays:
        return self.sums

    def watched(self, layer: StockLayer) -> Mapping[str, nn.Module]:
        return readers_and_writers(layer) if self.with_stream else writers(layer)

    def above(self, blocks: Blocks, index: int, last: Tensor, reading: Reading | None) -> None:
        if self.with_stream and reading is not None:
            self.sums["last"] += _add_reading(reading, blocks.tokens(index), self.sums)

    def layer(self, felt: Felt, blocks: Blocks) -> None:
        _add_outputs(felt, _counted(blocks, felt.tokens), self.sums)
        for reading in readings_of(felt, blocks) if self.with_stream else ():
            _add_reading(reading, felt.tokens, self.sums)

    def fisher(self, blocks: Blocks) -> Fisher:
        """Return the means over all tokens of the batches."""
        sums, batches = self.sums, range(len(blocks.batches))
        count = sum(int(_counted(blocks, blocks.tokens(index)).sum()) for index in batches)
        windows = sum(int(blocks.tokens(index)[:, 0].sum()) for index in batches)
        others = np.maximum(sums["shares"] / max(1, count), np.finfo(float).tiny)
        first = sums["first"] / max(1, windows) / others if blocks.predicts else None
        outputs = sums["outputs"] / (count * sums["shares"].size)
        shares = sums["shares"] / (count * max(float(np.trace(outputs)), np.finfo(float).tiny))
        return Fisher(outputs, shares, {name: sums[name] for name in STREAM if self.with_stream}, first)


def _counted(blocks: Blocks, tokens: Tensor) -> Tensor:
    """Return the tokens (b, t) whose gradients count: not the first of a window, unless it is the only one.

    Attention of all others rests on it, and its gradients would hide theirs.
    """
    if not blocks.predicts or tokens.shape[1] < 2:
        return tokens
    counted = tokens.clone()
    counted[:, 0] = False
    return counted


def _add_outputs(felt: Felt, tokens: Tensor, sums: Arrays) -> None:
    """Add what is felt of the outputs of a layer."""
    for place, role in enumerate(OUTPUT_ROLES):
        if role not in felt.gradients.outputs:
            continue  # the layer has no such output
        first = felt.gradients.outputs[role][:, 0][felt.tokens[:, 0]].double()
        sums["first"][felt.layer, place] += float(first.square().sum())
        gradients = felt.gradients.outputs[role][tokens].float()  # (n, d)
        moments = gram(gradients).cpu().double().numpy()
        sums["outputs"] += moments
        sums["shares"][felt.layer, place] += np.trace(moments)


def _add_reading(reading: Reading, tokens: Tensor, sums: Arrays) -> Floats:
    """Add what a norm reads, and return its second moments (d, d)."""
    dtype = torch.float32 if reading.stream.shape[-1] >= WIDE else torch.float64
    pair = normalised(reading.stream), reading.felt
    stream, felt = (each[tokens].cpu().to(dtype) for each in pair)
    moments: Floats = gram(stream).double().numpy()
    sums["energy"] += moments
    sums["metric"] += gram(felt).double().numpy()
    return moments
