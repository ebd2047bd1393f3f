"""Massive activations: planted ones are seen, with the neurons that write them, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import model
from transformers import PreTrainedModel

from zerolm.networks.blocks import Blocks
from zerolm.networks.roles import layer_list, layer_of, matrix, places_of
from zerolm.networks.stream import Stream
from zerolm.units.importance.sinks import sink_neurons

IDS = torch.randint(4, 60, (3, 12), generator=torch.Generator().manual_seed(0))
IDS[:, 0] = 1
LAYER, CHANNEL, NEURONS = 1, 7, (3, 11)


def stream(network: PreTrainedModel) -> Stream:
    return Stream(Blocks(network, [{"input_ids": ids} for ids in torch.split(IDS, 2)]))


def planted(size: float) -> PreTrainedModel:
    """A llama in which two neurons of a layer write into a channel, and only at the first token.

    They read a direction of the stream that the first token alone has: its embedding has it.
    """
    network = model("llama")
    with torch.no_grad():
        embedding = network.get_input_embeddings().weight
        embedding[:, 2] = 0.0
        embedding[1, 2] = 40.0
        for number in range(len(layer_list(network))):
            layer = layer_of(places_of(network), layer_list(network)[number])
            for out in (layer.writers["o"], layer.ffn_out):
                assert out is not None
                matrix(out)[2] = 0.0  # nothing else has that direction
        layer = layer_of(places_of(network), layer_list(network)[LAYER])
        for neuron, sign in zip(NEURONS, (1.0, -1.0), strict=True):
            gate, up = (matrix(part) for part in layer.ffn_in)
            for part, weight in ((gate, 1.0), (up, sign)):
                part[neuron] = 0.0
                part[neuron, 2] = weight
            matrix(layer.ffn_out)[CHANNEL, neuron] = sign * size
    return network


def test_planted_neurons_are_seen_and_no_others() -> None:
    assert [neurons.tolist() for neurons in sink_neurons(stream(planted(1e4)))] == [
        list(NEURONS) if number == LAYER else [] for number in range(3)
    ]


def test_a_neuron_that_writes_little_of_it_is_none() -> None:
    network = planted(1e4)
    with torch.no_grad():
        layer = layer_of(places_of(network), layer_list(network)[LAYER])
        assert layer.ffn_out is not None
        matrix(layer.ffn_out)[CHANNEL, NEURONS[1]] *= 1e-3
    assert sink_neurons(stream(network))[LAYER].tolist() == [NEURONS[0]]


def test_what_cancels_a_massive_activation_is_a_sink_too() -> None:
    network = planted(1e4)
    with torch.no_grad():
        first, last = (
            layer_of(places_of(network), layer_list(network)[number]) for number in (LAYER, LAYER + 1)
        )
        for ours, theirs in zip((*first.ffn_in, first.ffn_out), (*last.ffn_in, last.ffn_out), strict=True):
            assert ours is not None
            assert theirs is not None
            matrix(theirs).copy_(matrix(ours))
        matrix(last.ffn_out).neg_()  # type: ignore[arg-type]
        for part in map(matrix, last.ffn_in):  # of the normalised stream the massive channel is nearly all
            part[list(NEURONS), CHANNEL] = part[list(NEURONS), 2]
    assert sink_neurons(stream(network))[LAYER + 1].tolist() == list(NEURONS)


@pytest.mark.parametrize("name", ["llama", "bert", "gpt2"])
def test_a_network_without_any_has_none(name: str) -> None:
    neurons = sink_neurons(stream(model(name)))
    assert not any(len(part) for part in neurons)
    assert all(part.dtype == np.int64 for part in neurons)
