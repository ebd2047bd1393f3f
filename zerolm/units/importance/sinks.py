"""Massive activations of the residual stream, and the FFN neurons that write them (torch).

An activation is massive where its magnitude exceeds 100, and 1,000 times the median magnitude of its hidden
state (arXiv 2402.17762, section 2; revisited in arXiv 2503.22329).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from zerolm.architecture import Ints
from zerolm.networks.hooks import Seen
from zerolm.networks.roles import StockLayer, layer_list, matrix
from zerolm.networks.stream import Stream
from zerolm.progress import Progress, silent
from zerolm.units.pruning import dimensions_of

LEAST: Final = 100.0
RATIO: Final = 1000.0
CARRIED: Final = 0.9
"""The share of a massive output of ``down`` that its largest neurons must account for."""
LARGE: Final = 0.5
"""``down`` writes a massive activation where that is at least this share of its largest output for the
token."""


def sink_neurons(stream: Stream, *, progress: Progress = silent) -> list[Ints]:
    """Return the FFN units of each layer that write massive activations, ascending: they must be kept.

    They are seen on the batches of a stream, in one forward pass. A neuron of a layer counts where three
    conditions hold: what the layer adds to a channel is massive, whether it creates or cancels a massive
    activation; ``down`` adds it; and the neuron is among the largest contributors.
    """

    def down(layer: StockLayer) -> Mapping[str, nn.Module]:
        return {} if layer.ffn_out is None else {"down": layer.ffn_out}

    blocks, neurons = stream.blocks, list[Ints]()
    units, depth = dimensions_of(blocks.model).ffn, len(layer_list(blocks.model))
    for number in range(depth):
        progress("finding massive activations", number, depth)
        layer, carriers = blocks.layer(number), set[int]()
        for index, below, seen in stream.through(number, down):
            above, below = (blocks.keys.alone(states).float() for states in (stream.hidden[index], below))
            for place, channel in _added(above, below, blocks.tokens(index)):
                carriers |= _carriers(layer, seen, place, channel)
        columns = 1 if layer.ffn_out is None else matrix(layer.ffn_out).shape[1] // units
        neurons.append(np.unique(np.array(sorted(carriers), np.int64) // columns))
    return neurons


def _added(above: Tensor, below: Tensor, tokens: Tensor) -> list[tuple[tuple[int, int], int]]:
    """Return the places (sequence, position) and channels where a layer adds something massive."""
    least = torch.clamp(RATIO * above[tokens].abs().median(), min=LEAST)
    where = ((above - below).abs() > least) & tokens[..., None]
    return [((row, place), channel) for row, place, channel in where.nonzero().tolist()]


def _carriers(layer: StockLayer, seen: Seen, place: tuple[int, int], channel: int) -> set[int]:
    """Return the neurons that write most of a channel at a place."""
    if "down" not in seen.outputs or layer.ffn_out is None:
        return set()
    outputs, inputs = seen.outputs["down"][place].float(), seen.inputs["down"][place].float()  # (d,), (f,)
    total = float(outputs[channel])
    if abs(total) < LARGE * float(outputs.abs().max()):
        return set()  # attention added it, or a norm behind down made it large
    row = matrix(layer.ffn_out)[channel].float()  # (f,)
    parts = row * inputs * (1.0 if total > 0 else -1.0)
    order = parts.argsort(descending=True)
    reached = parts[order].cumsum(0) >= CARRIED * abs(total)
    count = int(reached.int().argmax()) + 1 if bool(reached.any()) else 0
    return {*order[:count].tolist()}
