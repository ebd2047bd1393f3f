"""Least squares give back a part of what is lost, in every family: where modules stand is its document's."""

from __future__ import annotations

import numpy as np
import pytest
from covering import chosen, in_networks
from tiny_families import SHARING, TINY, louder

from zerolm.families.known import families
from zerolm.networks.blocks import Blocks
from zerolm.planning.sensitivity import Loss
from zerolm.repairing.walk import repair
from zerolm.text.tokens import random_tokens
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.pruning import dimensions_of

TOKENS = random_tokens(64, 48, 16, seed=5)
CUT = [name for name in TINY if families()[name].cut.ffn]


@pytest.mark.parametrize("name", [*chosen(CUT, in_networks), SHARING])
def test_a_repaired_network_loses_less(name: str) -> None:
    """Half of the neurons go. Falcon once lost more: it adds attention to the output of its FFN in place."""
    network = louder(name)
    parent = dimensions_of(network)
    ffn = np.arange(0, parent.ffn, 2)
    layers = [LayerCut.of(layer, np.arange(parent.kv_heads), ffn) for layer in range(parent.depth)]
    cut = Cut(parent, tuple(layers))
    loss = Loss(Blocks(network, TOKENS.batches(8)), parent.depth)
    assert loss.of_cut(cut, repair(network, cut, TOKENS)) < loss.of_cut(cut)
