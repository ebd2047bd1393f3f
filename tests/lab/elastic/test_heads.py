"""CKA by its identities; fusion keeps width and weights of heads, removal cuts only those that are gone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion
from small_supernets import NAMES, WORDS, normal, space_of, supernet_of
from torch import Tensor

from zerolm.lab.supernets.heads import (
    cka,
    head_similarity,
    merged_heads,
    removed,
    with_fewer_heads,
    without_heads,
)
from zerolm.networks.build import build
from zerolm.networks.modules.layer import Stack
from zerolm.scores import make_score

IDS = torch.randint(WORDS, (5, 9), generator=torch.Generator().manual_seed(1))


def network_of(name: str) -> Stack:
    net = supernet_of(name, heads=4)
    path = [0, net.shape[1] - 1]
    module = build(net.architecture(path)).module
    assert isinstance(module, Stack)
    module.load_state_dict(net.path_state(path))
    return module


def alike(heads: int, pairs: list[tuple[int, int]]) -> torch.Tensor:
    similarity = torch.eye(heads, dtype=torch.float64)
    for i, j in pairs:
        similarity[i, j] = similarity[j, i] = 0.95
    return similarity


@pytest.mark.parametrize("name", NAMES)
def test_similarities_are_those_of_the_contexts(name: str) -> None:
    network = network_of(name)
    contexts: list[torch.Tensor] = []
    for layer in network.layers:
        step = getattr(layer.attention, "inner", layer.attention)
        step.o.register_forward_pre_hook(lambda _, given: contexts.append(given[0]))
    for tokens in (False, True):
        contexts.clear()
        for x, similarity in zip(contexts, head_similarity(network, IDS, tokens=tokens), strict=True):
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


SEEDS = st.integers(0, 10**6)


@given(SEEDS, st.integers(2, 15), st.integers(1, 8))
def test_the_biased_estimator_is_that_of_features(seed: int, n: int, d: int) -> None:
    """Kornblith et al., equation 4: the Frobenius norms of the covariances."""
    a, b = 1e3 * normal(seed, n, d) + 5.0, normal(seed + 1, n, d) - 5.0
    x, y = ((part - part.mean(0)).numpy() for part in (a, b))
    norm = np.linalg.norm
    twin = norm(y.T @ x) ** 2 / (norm(x.T @ x) * norm(y.T @ y))
    assert cka(torch.stack([a, b])).numpy() == pytest.approx(np.array([[1, twin], [twin, 1]]), rel=1e-9)


@given(SEEDS, st.integers(4, 15))
def test_the_unbiased_estimator_is_that_of_song(seed: int, n: int) -> None:
    """Song et al., equation 5, term by term."""

    def hsic(k: Tensor, other: Tensor) -> float:
        k, other = (part - part.diag().diag() for part in (k, other))
        middle = k.sum() * other.sum() / ((n - 1) * (n - 2))
        return float(((k @ other).trace() + middle - 2 / (n - 2) * (k @ other).sum()) / (n * (n - 3)))

    heads = normal(seed, 2, n, 5) + 5.0
    a, b = heads @ heads.mT
    twin = hsic(a, b) / np.sqrt(hsic(a, a) * hsic(b, b))
    assert cka(heads, True).numpy() == pytest.approx(np.array([[1, twin], [twin, 1]]), rel=1e-6, abs=1e-9)


def test_a_head_that_says_nothing_resembles_none() -> None:
    heads = torch.stack([normal(0, 6, 3), torch.full((6, 3), 0.1, dtype=torch.float64)])
    for unbiased in (False, True):
        assert cka(heads, unbiased)[1].abs().max() == 0


SIMILARITIES = st.integers(1, 12).flatmap(
    lambda heads: st.lists(st.floats(0, 1), min_size=heads**2, max_size=heads**2)
)


@given(SIMILARITIES, st.floats(0.1, 0.95))
def test_what_is_removed_resembles_one_that_stays(values: list[float], threshold: float) -> None:
    heads = int(len(values) ** 0.5)
    similarity = torch.tensor(values).reshape(heads, heads)
    gone = removed(similarity, threshold)
    stay = [head for head in range(heads) if head not in gone]
    assert len(set(gone)) == len(gone)
    assert 0 in stay
    for head in range(heads):
        alike = [other for other in stay if other < head and float(similarity[other, head]) > threshold]
        assert bool(alike) == (head in gone)


@pytest.mark.parametrize(
    ("alike", "width", "heads"),
    [(0, 528, 12), (1, 528, 11), (2, 528, 8), (5, 528, 6), (2, 132, 6), (11, 132, 1)],
)
def test_heads_that_are_left_divide_the_width(alike: int, width: int, heads: int) -> None:
    """Twelve heads, of which the last ``alike`` repeat the first."""
    similarity = torch.eye(12)
    similarity[0, 12 - alike :] = 1.0
    assert merged_heads(similarity, width) == heads
