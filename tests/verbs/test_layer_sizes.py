"""Architectures layer by layer, of every space."""

from __future__ import annotations

from typing import Any

import pytest

from zerolm.architecture import Architecture
from zerolm.show.charts import LayerSizes
from zerolm.show.strip import columns, labels, largest, strip, to_runs
from zerolm.spaces import make_space, space_names
from zerolm.verbs.search_charts import layer_sizes

LLAMA = {"depth": 3, "hidden": 256, "head_size": 64, "heads": 4, "kv_heads": 2, "ffn": 640}


def read(space: str, **choices: Any) -> Architecture:
    return make_space(space).read(choices)


def smallest(name: str) -> Architecture:
    space = make_space(name)
    backbone = next(iter(space.backbones()))
    return space.assemble(backbone, [[0] * (1 if b.tied else b.count) for b in backbone.blocks])


def test_a_llama_has_the_sizes_of_its_choices() -> None:
    layers = layer_sizes(read("llama", **LLAMA))
    assert layers == [LayerSizes(256, 256, 128, 4, 640)] * 3
    assert to_runs(layers) == [[3, 256, 256, 128, 4, 640]]
    assert labels(layers) == {"width": "256", "attention": "4 heads, 2 KV", "ffn": "640"}


def test_stages_of_a_pit_have_their_own_heads() -> None:
    layers = layer_sizes(read("pit", base_dim=16, mlp_ratio=2, depth=[1, 4, 2], num_heads=[2, 4, 8]))
    assert [layer.heads for layer in layers] == [2, 4, 4, 4, 4, 8, 8]
    assert labels(layers)["attention"] == "2 to 8 heads"
    assert len(to_runs(layers)) == 3


@pytest.mark.parametrize("name", space_names())
def test_every_space_can_be_drawn(name: str) -> None:
    architecture = smallest(name)
    layers = layer_sizes(architecture)
    assert len(layers) == architecture.depth
    has_ffn = any(matrix.role == "ffn" for matrix in architecture.layers[0].matrices)
    assert all(layer.heads and bool(layer.ffn) == has_ffn for layer in layers)
    drawn = strip(layers, largest([layers]), slots=True)
    assert drawn.count("h.84") == (3 + has_ffn) * len(layers)


def test_columns_are_as_high_as_values() -> None:
    assert columns([1, 2, 0, 4], 4) == "M0.08 100v-25h.84v25zM1.08 100v-50h.84v50zM3.08 100v-100h.84v100z"
    assert labels([LayerSizes(0, 0, 0, 0, 0), LayerSizes(8, 8, 8, 2, 9)])["ffn"] == "9"
