"""Fisher information of outputs and second moments of the residual stream, from one pass of a parent (torch).

The pass goes forward and back. For a y sampled from the parent's own predictions let G be the gradient of
-log p(y) in an output. To second order an error e of that output costs 1/2 e^T F e. F, the mean of G G^T over
tokens, is the Fisher information. All output matrices share one F, the mean over all of them; each has a
factor for its own trace. An F for each matrix would hardly improve the choice of units, and would not fit in
memory.

Where a norm of gain g stands behind an output, alone or on its sum with the stream, F is that behind the
norm. Before the norm the gradient is diag(g) times that behind it, up to a factor by token and a projection.
So the output has diag(g) F diag(g). Gains differ: in Gemma 3 270M their medians are .3 to 340 by layer, and
those of one layer differ by a factor of 100.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from zerolm.architecture import Floats
from zerolm.families.family import OUTPUT_ROLES
from zerolm.io.cache import Arrays
from zerolm.networks.blocks import Blocks
from zerolm.networks.roles import StockLayer, gain_of, layer_list, layer_of, places_of
from zerolm.passes.token_sums import gram
from zerolm.passes.walk import (
    Accumulator,
    LayerGradients,
    NormInput,
    input_norms,
    norm_inputs,
    normalised,
    writers_and_norms,
)

WIDE: Final = 512
"""From this hidden size on, second moments of the residual stream are computed in float32."""
STREAM: Final = ("energy", "metric", "last")
SHRINKAGE: Final = 0.5
"""The share of the identity in the Fisher information of an output. Without it units are chosen for the few
channels of the largest gains: Gemma 3 270M loses a fifth less with it."""


@dataclass(frozen=True, eq=False)
class Fisher:
    """Second moments over all tokens of a parent with hidden size d.

    ``outputs`` (d, d) is F, the mean over all output matrices. ``shares`` (layers, roles) are the traces of
    the Fisher information of ``OUTPUT_ROLES`` in a layer, in units of the trace of F. ``gains`` (layers,
    roles, d) are those of the norms behind the outputs, None where there are none.

    ``first`` (layers, roles) are the squared gradients of the first tokens of windows, in units of the mean
    of the other tokens' (None for an encoder). F excludes first tokens, which are attention sinks for all
    others.

    ``stream`` holds sums over all norms, (d, d) each, where the stream can be narrowed: second moments of the
    normalised stream (``energy``), of its gradients (``metric``), and of the normalised stream before the
    head alone (``last``).
    """

    outputs: Floats
    shares: Floats
    stream: Mapping[str, Floats]
    first: Floats | None = None
    gains: Floats | None = None

    def first_token(self, layer: int, role: str) -> float | None:
        """Return the squared gradient of first tokens behind an output matrix, in units of the others'."""
        return None if self.first is None else float(self.first[layer, OUTPUT_ROLES.index(role)])

    def root(self, layer: int, role: str) -> Floats:
        """Return R (d, d) for an output of ``OUTPUT_ROLES``: R R^T = (1 - s) F + s I tr F / d.

        F is that of the output, and s ``SHRINKAGE``.
        """
        place = layer, OUTPUT_ROLES.index(role)
        if self.gains is None:
            root, trace = self._shared_root
        else:
            root, trace = _shrunk_root(self.gains[place][:, None] * self.outputs * self.gains[place])
        wanted = float(self.shares[place] * np.trace(self.outputs))
        return np.asarray(root * np.sqrt(wanted / trace))

    @cached_property
    def _shared_root(self) -> tuple[Floats, float]:
        """The root for all outputs where no norms stand behind them: F is factored once."""
        return _shrunk_root(self.outputs)


def _shrunk_root(moments: Floats) -> tuple[Floats, float]:
    """Return a root of F (d, d) of trace 1, shrunk towards the identity, and its trace."""
    shrunk = (1 - SHRINKAGE) * moments / max(float(np.trace(moments)), np.finfo(float).tiny)
    shrunk.flat[:: len(shrunk) + 1] += SHRINKAGE / len(shrunk)
    return np.asarray(np.linalg.cholesky(shrunk), np.float64), float(np.trace(shrunk))


class FisherSums(Accumulator):
    """Sums of the Fisher information of all outputs, and ``with_stream`` of the moments of the stream."""

    def __init__(self, blocks: Blocks, *, with_stream: bool) -> None:
        depth, hidden = len(layer_list(blocks.model)), int(blocks.model.config.hidden_size)
        self.with_stream = self.needs_head_input = with_stream
        self.arrays = {"outputs": np.zeros((hidden, hidden))}
        self.arrays |= {name: np.zeros((depth, len(OUTPUT_ROLES))) for name in ("shares", "first")}
        self.arrays |= {name: np.zeros((hidden, hidden)) for name in STREAM if with_stream}

    def watched(self, layer: StockLayer) -> Mapping[str, nn.Module]:
        norms = input_norms(layer) if self.with_stream else {}
        return {**norms, **writers_and_norms(layer)}

    def above(self, blocks: Blocks, index: int, last: Tensor, reading: NormInput | None) -> None:
        if self.with_stream:
            assert reading is not None
            self.arrays["last"] += _add_reading(reading, blocks.tokens(index), self.arrays)

    def layer(self, layer_gradients: LayerGradients, blocks: Blocks) -> None:
        _add_outputs(layer_gradients, _counted(blocks, layer_gradients.tokens), self.arrays)
        for reading in norm_inputs(layer_gradients, blocks) if self.with_stream else ():
            _add_reading(reading, layer_gradients.tokens, self.arrays)

    def fisher(self, blocks: Blocks) -> Fisher:
        """Return the means over all tokens of the batches."""
        sums, batches = self.arrays, range(len(blocks.batches))
        count = sum(int(_counted(blocks, blocks.tokens(index)).sum()) for index in batches)
        windows = sum(int(blocks.tokens(index)[:, 0].sum()) for index in batches)
        others = np.maximum(sums["shares"] / max(1, count), np.finfo(float).tiny)
        first = sums["first"] / max(1, windows) / others if blocks.predicts else None
        outputs = sums["outputs"] / (count * sums["shares"].size)
        shares = sums["shares"] / (count * max(float(np.trace(outputs)), np.finfo(float).tiny))
        stream = {name: sums[name] for name in STREAM if self.with_stream}
        return Fisher(outputs, shares, stream, first, _gains(blocks))


def _counted(blocks: Blocks, tokens: Tensor) -> Tensor:
    """Return the tokens (b, t) whose gradients count: not the first of a window, unless it is the only one.

    The first token is an attention sink for all others, and its gradients would hide theirs.
    """
    if not blocks.predicts or tokens.shape[1] < 2:
        return tokens
    counted = tokens.clone()
    counted[:, 0] = False
    return counted


def _add_outputs(layer_gradients: LayerGradients, tokens: Tensor, sums: Arrays) -> None:
    for place, role in enumerate(OUTPUT_ROLES):
        if role not in layer_gradients.gradients.outputs:
            continue  # the layer has no such output
        gradient = layer_gradients.gradients.outputs[role]
        first = gradient[:, 0][layer_gradients.tokens[:, 0]].double()
        sums["first"][layer_gradients.layer, place] += float(first.square().sum())
        sums["shares"][layer_gradients.layer, place] += float(gradient[tokens].double().square().sum())
        behind = layer_gradients.gradients.outputs.get(f"behind_{role}", gradient)[tokens].float()  # (n, d)
        sums["outputs"] += gram(behind).cpu().double().numpy()


def _gains(blocks: Blocks) -> Floats | None:
    """Return the gains (layers, roles, d) of the norms behind outputs, 1 where one has none."""
    model, places = blocks.model, places_of(blocks.model)
    if not any(places.behind.values()):
        return None
    layers = layer_list(model)
    gains = np.ones((len(layers), len(OUTPUT_ROLES), int(model.config.hidden_size)))
    for number, module in enumerate(layers):
        for name, norm in layer_of(places, module).behind.items():
            place = OUTPUT_ROLES.index(name.removeprefix("behind_"))
            gains[number, place] = gain_of(model, norm).cpu().numpy()
    return gains


def _add_reading(reading: NormInput, tokens: Tensor, sums: Arrays) -> Floats:
    """Add the second moments of a norm's normalised input and of its gradients; return the former (d, d)."""
    dtype = torch.float32 if reading.stream.shape[-1] >= WIDE else torch.float64
    pair = normalised(reading.stream), reading.gradient
    stream, gradient = (each[tokens].cpu().to(dtype) for each in pair)
    moments: Floats = gram(stream).double().numpy()
    sums["energy"] += moments
    sums["metric"] += gram(gradient).double().numpy()
    return moments
