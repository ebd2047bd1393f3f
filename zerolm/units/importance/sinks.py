"""Massive activations of the residual stream, and the FFN neurons and weights that write them (torch).

An activation is massive where its magnitude exceeds 100, and 1,000 times the median magnitude of its hidden
state (arXiv 2402.17762, section 2; revisited in arXiv 2503.22329). A super weight is the entry of a down
projection behind its largest input and output activation (arXiv 2411.07191, section 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
"""``down`` writes a massive activation where that is at least this share of its largest output for the token.
A weight is super where it writes this share of a massive activation."""


@dataclass(frozen=True)
class Massive:
    """A ``channel`` of the stream that is massive behind a ``layer``, and its largest ``value`` there.

    ``ratio`` is that value over the median magnitude of the states. ``tokens`` counts the tokens where it is
    massive, ``first`` those of them that are the first of their windows.
    """

    layer: int
    channel: int
    value: float
    ratio: float
    tokens: int
    first: int


@dataclass(frozen=True)
class SuperWeight:
    """An entry of ``down``, (``channel``, ``neuron``): its ``weight``, input and output activations."""

    layer: int
    channel: int
    neuron: int
    weight: float
    input: float
    output: float


@dataclass(frozen=True, eq=False)
class Sinks:
    """All ``massive`` activations and super ``weights`` of a network, and the ``neurons`` that write them.

    ``neurons`` are FFN units of each layer, ascending, none where ``down`` writes nothing massive.
    """

    massive: tuple[Massive, ...]
    weights: tuple[SuperWeight, ...]
    neurons: tuple[Ints, ...]


def sink_neurons(stream: Stream, *, progress: Progress = silent) -> list[Ints]:
    """Return the FFN units of each layer that write massive activations, (n,) each: they must be kept."""
    return list(sinks(stream, progress=progress).neurons)


def sinks(stream: Stream, *, progress: Progress = silent) -> Sinks:
    """Return the massive activations of a network on the batches of a stream, in one forward pass.

    A neuron of a layer counts where three conditions hold: what the layer adds to a channel is massive,
    whether it creates or cancels a massive activation; ``down`` adds it; and the neuron is among the largest
    contributors.
    """
    blocks = stream.blocks
    units, depth = dimensions_of(blocks.model).ffn, len(layer_list(blocks.model))
    massive, weights, neurons = list[Massive](), dict[tuple[int, int, int], SuperWeight](), list[Ints]()
    for number in range(depth):
        progress("finding massive activations", number, depth)
        layer, channels, carriers = blocks.layer(number), dict[int, Massive](), set[int]()
        for index, below, seen in stream.through(number, _down):
            above, below = (blocks.keys.alone(states).float() for states in (stream.hidden[index], below))
            tokens = blocks.tokens(index)
            for large in _massive(number, above, tokens):
                before = channels.get(large.channel)
                channels[large.channel] = large if before is None else _both(before, large)
            for place, channel in _added(above, below, tokens):
                for candidate in _carriers(number, layer, seen, place, channel):
                    carriers.add(candidate.neuron)
                    key = number, channel, candidate.neuron
                    is_larger = key not in weights or abs(candidate.output) > abs(weights[key].output)
                    if is_larger and abs(candidate.weight * candidate.input) >= LARGE * abs(candidate.output):
                        weights[key] = candidate
        massive += channels.values()
        columns = 1 if layer.ffn_out is None else matrix(layer.ffn_out).shape[1] // units
        neurons.append(np.unique(np.array(sorted(carriers), np.int64) // columns))
    return Sinks(tuple(massive), tuple(weights.values()), tuple(neurons))


def _down(layer: StockLayer) -> Mapping[str, nn.Module]:
    return {} if layer.ffn_out is None else {"down": layer.ffn_out}


def _is_massive(values: Tensor, median: Tensor) -> Tensor:
    return values.abs() > torch.clamp(RATIO * median, min=LEAST)


def _massive(layer: int, states: Tensor, tokens: Tensor) -> list[Massive]:
    """Return the massive channels of states (b, t, d) at ``tokens`` (b, t)."""
    median = states[tokens].abs().median()
    where = _is_massive(states, median) & tokens[..., None]
    parts = []
    for channel in where.flatten(0, 1).any(0).nonzero().flatten().tolist():
        here, values = where[..., channel], states[..., channel]
        value = float(values[here][values[here].abs().argmax()])
        ratio = abs(value) / max(float(median), 1e-12)
        parts.append(Massive(layer, channel, value, ratio, int(here.sum()), int(here[:, 0].sum())))
    return parts


def _both(first: Massive, second: Massive) -> Massive:
    """Return a massive channel merged from two batches."""
    larger = max(first, second, key=lambda one: abs(one.value))
    tokens, at_first = first.tokens + second.tokens, first.first + second.first
    return Massive(larger.layer, larger.channel, larger.value, larger.ratio, tokens, at_first)


def _added(above: Tensor, below: Tensor, tokens: Tensor) -> list[tuple[tuple[int, int], int]]:
    """Return the places (sequence, position) and channels where a layer adds something massive."""
    where = _is_massive(above - below, above[tokens].abs().median()) & tokens[..., None]
    return [((row, place), channel) for row, place, channel in where.nonzero().tolist()]


def _carriers(
    number: int, layer: StockLayer, seen: Seen, place: tuple[int, int], channel: int
) -> list[SuperWeight]:
    """Return the neurons that write most of a channel at a place, each with its weight and activations."""
    if "down" not in seen.outputs or layer.ffn_out is None:
        return []
    outputs, inputs = seen.outputs["down"][place].float(), seen.inputs["down"][place].float()  # (d,), (f,)
    total = float(outputs[channel])
    if abs(total) < LARGE * float(outputs.abs().max()):
        return []  # attention added it, or a norm behind down made it large
    row = matrix(layer.ffn_out)[channel].float()  # (f,)
    parts = row * inputs * (1.0 if total > 0 else -1.0)
    order = parts.argsort(descending=True)
    reached = parts[order].cumsum(0) >= CARRIED * abs(total)
    count = int(reached.int().argmax()) + 1 if bool(reached.any()) else 0
    return [
        SuperWeight(number, channel, neuron, float(row[neuron]), float(inputs[neuron]), total)
        for neuron in order[:count].tolist()
    ]
