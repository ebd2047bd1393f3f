"""Paths through a supernet are the networks of their architectures, prefixes of FFNs and all."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion
from small_supernets import NAMES, WORDS, space_of, supernet_of

from zerolm.lab.supernets.supernet import Supernet, drawn_path
from zerolm.networks.build import build
from zerolm.scores import make_score

IDS = torch.randint(WORDS, (2, 9), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=portion(12))
@given(st.data())
def test_a_path_is_the_network_of_its_architecture(name: str, data: st.DataObject) -> None:
    net = supernet_of(name, shares=["none", "kv", "qv", "qk"])
    layers, kinds = net.shape
    wide = st.lists(st.sampled_from((4, 8, 12)), min_size=layers * kinds, max_size=layers * kinds)
    net.widths.copy_(torch.tensor(data.draw(wide)).reshape(net.shape))
    path = data.draw(st.lists(st.integers(0, kinds - 1), min_size=layers, max_size=layers))
    architecture = net.architecture(path)
    alone = build(architecture).module
    alone.load_state_dict(net.path_state(path))
    with torch.no_grad():
        assert torch.allclose(net(IDS, path), alone(IDS), atol=1e-5)
        features, logits = net.features(IDS, path)
    assert torch.allclose(logits, alone(IDS), atol=1e-5)
    assert len(features.layers) == len(features.attention) == layers
    assert [x.shape[-1] for x in features.attention] == [
        4 if layer["block"] == "mobile" else 16 for layer in architecture.choices["layers"]
    ]
    assert net.path_of(architecture) == path
    assert net.grown_space().read(architecture.choices) == architecture
    table = net.params()
    inside = sum(int(table[layer, kind]) for layer, kind in enumerate(path))
    ends = make_score("params").of(architecture) - inside
    assert ends == sum(p.numel() for n, p in alone.named_parameters() if not n.startswith("layers."))


def test_only_the_blocks_of_a_path_get_gradients_and_of_them_the_active_neurons() -> None:
    net = supernet_of()
    net(IDS, [1, 3]).square().sum().backward()
    on_path = {0 * 6 + 1, 1 * 6 + 3}
    for number, layer in enumerate(net.stack.layers):
        assert any(p.grad is not None for p in layer.parameters()) == (number in on_path)
    gradient = net.layer(0, 1).get_parameter("ffn.inner.up.weight").grad
    assert bool(gradient[:4].any())
    assert not bool(gradient[4:].any())


def test_paths_are_drawn_alike_and_evenly() -> None:
    paths = torch.tensor([drawn_path((3, 4), 7, number) for number in range(2000)])
    assert paths.tolist() == [drawn_path((3, 4), 7, number) for number in range(2000)]
    assert paths.tolist() != [drawn_path((3, 4), 8, number) for number in range(2000)]
    shares = torch.stack([(paths == kind).double().mean(0) for kind in range(4)])
    assert bool(((shares - 0.25).abs() < 5 * (0.25 * 0.75 / 2000) ** 0.5).all())
    together = (paths[:, 0] * 4 + paths[:, 1]).bincount(minlength=16) / 2000
    assert bool(((together - 1 / 16).abs() < 5 * (1 / 16 / 2000) ** 0.5).all())


def test_weights_begin_as_the_seed_says() -> None:
    one, same, other = (Supernet(space_of(), seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("name", "layers", "message"),
    [
        ("elastic", [("bert", "none", 4)], "1 layer of 'elastic' is no path through 2 layers"),
        ("elastic", [("bert", "none", 8)] * 2, r"layer 1, \('bert', 'none'\) with ffn 8, is not of the"),
        ("elastic", [("bert", "none", 4), ("bert", "qk", 4)], r"layer 2, \('bert', 'qk'\) with ffn 4"),
        ("elastic-causal", [("bert", "none", 4)] * 2, "2 layers of 'elastic-causal' is no path"),
    ],
)
def test_what_is_no_path_is_refused(name: str, layers: list[tuple[str, str, int]], message: str) -> None:
    choices = [{"block": block, "share": share, "ffn": ffn} for block, share, ffn in layers]
    with pytest.raises(ValueError, match=message):
        supernet_of().path_of(space_of(name).read({"layers": choices}))
