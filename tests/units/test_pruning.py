"""Cuts: kept places of every axis, cuts of cuts, and a sliced network that is its masked parent."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import MODELS, model

from zerolm.networks.roles import layer_list, layers_of, matrix, set_matrix
from zerolm.units.kept_units import Cut, Dimensions, LayerCut, best
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
    weight, bias = np.ones((len(cut.layers[0]["ffn"]), 48), np.float32), np.full(48, 2, np.float32)
    repaired = Repaired({(1, "down"): weight, (1, "down_bias"): bias})
    (layer,) = layers_of(apply_in_memory(network, cut, repaired))
    assert layer.ffn_out.get_parameter("weight").tolist() == weight.tolist()
    assert layer.ffn_out.get_parameter("bias").tolist() == bias.tolist()
    assert list(repaired.named(lambda role, layer: f"{layer}.{role}")) == ["1.down", "1.down_bias"]


LABELS = ("q", "kv", "ffn", "q+kv+kv", "ffn+ffn", "kv+q", "hidden", "vocab")


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    groups, per_group, size, ffn = (draw(st.integers(1, most)) for most in (4, 3, 3, 5))
    parent = Dimensions(2, 8, groups * per_group, groups, size, ffn)
    kinds = [st.sets(st.integers(0, whole - 1), min_size=1) for whole in (groups, ffn)]
    units = st.lists(st.tuples(*kinds), min_size=2, max_size=2)
    layers = [LayerCut.of(i, *(np.array(sorted(kind)) for kind in p)) for i, p in enumerate(draw(units))]
    return Cut(parent, tuple(layers))


def owners(cut: Cut, groups: int, ffn: int, label: str) -> list[tuple[int, str, int, int]]:
    """Return part, kind, unit and element of each place of an axis, one by one."""
    parent, places = cut.parent, []
    sizes = {"q": parent.heads // parent.kv_heads * parent.head_size, "kv": parent.head_size, "ffn": 1}
    for number, name in enumerate(label.split("+")):
        kind, count = ("ffn", ffn) if name == "ffn" else ("groups", groups)
        places += [(number, kind, u, e) for u in range(count) for e in range(sizes[name])]
    return places


@given(cuts(), st.sampled_from(LABELS))
def test_kept_indices_and_places_are_those_of_a_walk_by_hand(cut: Cut, label: str) -> None:
    for layer in cut.layers:
        kept, places = cut.kept(layer, label), cut.places(layer, label)
        if label in ("hidden", "vocab"):
            assert kept is None
            assert places is None
            assert cut.parent.length(label, (1, 1)) == 0
            continue
        whole = owners(cut, cut.parent.kv_heads, cut.parent.ffn, label)
        wanted = [i for i, (_, kind, unit, _) in enumerate(whole) if unit in layer[kind]]
        assert kept.tolist() == wanted
        largest = owners(cut, *cut.largest, label)
        corner = [i for i, (_, kind, unit, _) in enumerate(largest) if unit < len(layer[kind])]
        assert places.tolist() == corner
        assert cut.parent.length(label, cut.largest) == len(largest)
        assert len(kept) == len(places)


@given(st.data())
def test_cuts_compose(data: st.DataObject) -> None:
    """Keeping a part of a part is keeping that part, along every axis, however the steps are grouped."""
    first = uniform(data.draw(cuts()))
    second = uniform(data.draw(parts_of(first)))
    both = second.after(first)
    third = data.draw(parts_of(both))
    for layer, inner in zip(both.layers, second.layers, strict=True):
        before = first.layers[inner.layer]
        assert layer.layer == before.layer
        for label in ("q", "kv", "ffn", "q+kv+kv"):
            outer, of_child = first.kept(before, label), second.kept(inner, label)
            assert outer[of_child].tolist() == both.kept(layer, label).tolist()
    at_once, in_steps = third.after(both), third.after(second).after(first)
    units = [[(x.layer, *map(list, x.kept.values())) for x in cut.layers] for cut in (at_once, in_steps)]
    assert units[0] == units[1]


def uniform(cut: Cut) -> Cut:
    """A cut to the smallest sizes of any layer."""
    sizes = tuple(map(min, zip(*cut.sizes.values(), strict=True)))
    layers = (
        LayerCut.of(layer.layer, *(units[:n] for units, n in zip(layer.kept.values(), sizes, strict=True)))
        for layer in cut.layers
    )
    return replace(cut, layers=tuple(layers))


@st.composite
def parts_of(draw: st.DrawFn, first: Cut) -> Cut:
    """A cut of the child of a cut that has the same sizes in all layers."""
    sizes = first.largest
    child = replace(first.parent.resized(sizes), depth=len(first.layers))
    layers = sorted(draw(st.sets(st.sampled_from(range(child.depth)), min_size=1)))
    kept = [[draw(st.sets(st.sampled_from(range(size)), min_size=1)) for size in sizes] for _ in layers]
    rows = zip(layers, kept, strict=True)
    return Cut(child, tuple(LayerCut.of(at, *(np.array(sorted(x)) for x in units)) for at, units in rows))


def test_of_equally_important_units_the_first_are_kept() -> None:
    assert best([1.0, 2.0, 1.0, 2.0, 1.0], 3).tolist() == [0, 1, 3]
    assert best([0.0] * 4, 2).tolist() == [0, 1]
    assert best([3.0, 1.0, 2.0], 2).tolist() == [0, 2]
