"""A sliced network computes what the masked parent computes, in every family, with other widths a layer."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from tiny import MODELS, model

from zerolm.networks.roles import layer_list, layers_of, matrix, set_matrix
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.pruning import Repaired, apply_in_memory, dimensions_of

IDS = torch.randint(64, (2, 10), generator=torch.Generator().manual_seed(3))


def some_cut(network: Any, layers: tuple[int, ...] = (0, 1, 2)) -> Cut:
    """Other groups and neurons in every layer."""
    sizes, generator = dimensions_of(network), np.random.default_rng(0)

    def some(count: int) -> np.ndarray:
        return np.sort(generator.choice(count, generator.integers(1, count + 1), replace=False))

    return Cut(sizes, tuple(LayerCut.of(layer, some(sizes.kv_heads), some(sizes.ffn)) for layer in layers))


def masked(network: Any, cut: Cut) -> Any:
    """The parent where what is dropped sends nothing: the literal twin."""
    twin = copy.deepcopy(network)
    layers = layers_of(twin)
    for kept in cut.layers:
        layer = layers[kept.layer]
        for module, axis in ((layer.writers["o"], "q"), (layer.ffn_out, "ffn")):
            columns = torch.zeros_like(matrix(module))
            index = cut.kept(kept, axis)
            columns[:, index] = matrix(module)[:, index]
            set_matrix(module, columns, None)
    listed, wanted = layer_list(twin), [kept.layer for kept in cut.layers]
    for number, module in enumerate(list(listed)):
        if number not in wanted:
            module.forward = lambda hidden, *_, **__: hidden
    return twin


@pytest.mark.parametrize("layers", [(0, 1, 2), (0, 2)])
@pytest.mark.parametrize("name", MODELS)
def test_sliced_equals_masked(name: str, layers: tuple[int, ...]) -> None:
    network = model(name)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    cut = some_cut(network, layers)
    child = apply_in_memory(network, cut)
    with torch.no_grad():
        ours, wanted = child(IDS, use_cache=False)[0], masked(network, cut)(IDS, use_cache=False)[0]
    assert torch.allclose(ours, wanted, atol=1e-4)
    sizes = dimensions_of(network)
    for layer, kept in zip(layers_of(child), cut.layers, strict=True):
        inner = len(kept["groups"]) * sizes.heads_per_group * sizes.head_size
        assert matrix(layer.writers["o"]).shape == (sizes.hidden, inner)
        assert matrix(layer.ffn_in[0]).shape == (len(kept["ffn"]), sizes.hidden)
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2"])
def test_a_child_without_a_layer_still_generates(name: str) -> None:
    network = model(name)
    child = apply_in_memory(network, some_cut(network, (0, 2)))
    cached = child.generate(IDS, max_new_tokens=4, do_sample=False, use_cache=True, pad_token_id=0)
    plain = child.generate(IDS, max_new_tokens=4, do_sample=False, use_cache=False, pad_token_id=0)
    assert torch.equal(cached, plain)


def test_repaired_matrices_are_put_in_as_they_are_stored() -> None:
    network = model("gpt2")
    cut = some_cut(network, (1,))
    kept = len(cut.layers[0]["ffn"])
    weight, bias = np.ones((kept, 48), np.float32), np.full(48, 2, np.float32)
    repaired = Repaired({(1, "down"): weight, (1, "down_bias"): bias})
    (layer,) = layers_of(apply_in_memory(network, cut, repaired))
    assert layer.ffn_out.get_parameter("weight").tolist() == weight.tolist()
    assert layer.ffn_out.get_parameter("bias").tolist() == bias.tolist()
    named = repaired.named(lambda role, layer: f"{layer}.{role}")
    assert list(named) == ["1.down", "1.down_bias"]
