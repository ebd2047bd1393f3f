"""Fewer heads: fusion keeps width and weights, removal cuts only the heads that are gone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion
from small_supernets import NAMES, WORDS, space_of, supernet_of

from zerolm.lab.supernets.heads import cka, head_similarity, with_fewer_heads, without_heads
from zerolm.networks.build import build
from zerolm.networks.modules.layer import Stack
from zerolm.scores import make_score

IDS = torch.randint(WORDS, (5, 9), generator=torch.Generator().manual_seed(1))


def network_of(name: str) -> tuple[Stack, object]:
    net = supernet_of(name, heads=4)
    path = [0, net.shape[1] - 1]
    module = build(net.architecture(path)).module
    assert isinstance(module, Stack)
    module.load_state_dict(net.path_state(path))
    return module, net.architecture(path)


def alike(heads: int, pairs: list[tuple[int, int]]) -> torch.Tensor:
    similarity = torch.eye(heads, dtype=torch.float64)
    for i, j in pairs:
        similarity[i, j] = similarity[j, i] = 0.95
    return similarity


@pytest.mark.parametrize("name", NAMES)
def test_similarities_are_those_of_the_contexts(name: str) -> None:
    network, _ = network_of(name)
    contexts: list[torch.Tensor] = []
    for layer in network.layers:
        step = getattr(layer.attention, "inner", layer.attention)
        step.o.register_forward_pre_hook(lambda _, given: contexts.append(given[0]))
    for tokens in (False, True):
        contexts.clear()
        rows = head_similarity(network, IDS, tokens=tokens)
        for x, similarity in zip(contexts, rows, strict=True):
            heads = x.unflatten(2, (4, -1)).permute(2, 0, 1, 3)  # type: ignore[no-untyped-call]
            samples = heads.reshape(4, 45, -1) if tokens else heads.reshape(4, 5, -1)
            assert torch.allclose(similarity, cka(samples))


@settings(max_examples=portion(15))
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=4), st.sampled_from(NAMES))
def test_fusion_keeps_the_width_and_every_parameter(pairs: list[tuple[int, int]], name: str) -> None:
    space = space_of(name, heads=4)
    choices = [{"block": block, "share": "none", "ffn": 4} for block in space.blocks]
    whole = space.read({"layers": choices})
    fewer = with_fewer_heads(space, whole, [alike(4, pairs)] * len(choices), "fuse")
    assert fewer.layers == whole.layers
    for layer, choice in zip(fewer.layers, fewer.choices["layers"], strict=True):
        assert "head_size" not in choice
        assert layer.query_width % choice["heads"] == 0
        assert choice["heads"] <= 4
        assert choice["block"] != "llama" or layer.query_width // choice["heads"] % 2 == 0
    build(fewer).module.load_state_dict(build(whole).module.state_dict())


def test_removed_heads_are_those_without_a_say() -> None:
    """The network without a head is the one whose output matrix does not read that head."""
    net = supernet_of("elastic", heads=4, shares=["none", "kv", "qv", "qk"])
    for path in ([0, 5], [1, 6], [2, 7], [3, 4]):
        whole = net.architecture(path)
        rows = [alike(4, [(0, 2)]), alike(4, [(1, 2), (1, 3)])]
        fewer = with_fewer_heads(net.space, whole, rows, "remove")
        assert [layer["heads"] for layer in fewer.choices["layers"]] == [3, 2]
        state = net.path_state(path)
        small, mute = build(fewer).module, build(whole).module
        small.load_state_dict(without_heads(state, whole, rows))
        for number, gone in enumerate(([2], [2, 3])):
            (name,) = (
                key for key in state if key.startswith(f"layers.{number}.") and key.endswith(".o.weight")
            )
            state[name] = state[name].clone()
            state[name].reshape(len(state[name]), 4, -1)[:, gone] = 0
        mute.load_state_dict(state)
        assert torch.allclose(small(IDS), mute(IDS), atol=1e-5)
        assert make_score("params").of(fewer) < make_score("params").of(whole)
