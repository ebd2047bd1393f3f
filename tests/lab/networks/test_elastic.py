"""The blocks of ELM: parameters as its formulas say, shared projections, neighbours, padding."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion
from torch import Tensor

from zerolm.architecture import Layer
from zerolm.lab.networks.elastic import TrigramTokens, later
from zerolm.lab.spaces.elastic import SHARED
from zerolm.networks.build import build
from zerolm.networks.modules.layer import Stack
from zerolm.scores import make_score
from zerolm.spaces import SearchSpace, make_space

TINY = {"hidden": 16, "heads": 2, "embedding": 6, "vocab": 40, "positions": 20, "step": 4}
NAMES = ("elastic", "elastic-causal")


def layer_of(space: SearchSpace, block: str, share: str, ffn: int, **more: int) -> Layer:
    (layer,) = space.read({"layers": [{"block": block, "share": share, "ffn": ffn, **more}]}).layers
    return layer


def params(layer: Layer) -> int:
    return layer.weights + layer.vectors


@given(st.integers(1, 6), st.sampled_from(list(SHARED)))
def test_blocks_have_the_parameters_of_elm(steps: int, share: str) -> None:
    """BERT 4(D^2+D)+2D+(2Df+f+D)+2D, MobileBERT as the released code counts; a shared one saves D x D + D."""
    space, d, f = make_space("elastic"), 528, 132 * steps
    n = d // 4
    bert = 4 * (d * d + d) + 2 * d + (2 * d * f + f + d) + 2 * d
    mobile = (d * n + n) + (n * d + d) + 3 * (d * n + n) + (n * n + n) + (2 * n * f + f + n)
    saved = 0 if share == "none" else 1
    assert params(layer_of(space, "bert", share, f)) == bert - saved * 279_312
    assert params(layer_of(space, "mobile", share, f)) == mobile + (4 * n + 2 * d) - saved * 69_828
    if share == "none" and steps in (1, 6):
        assert bert == {1: 1_259_412, 6: 1_957_032}[steps]
        assert mobile == {1: 402_204, 6: 577_104}[steps]


def test_paths_have_the_sizes_of_elm() -> None:
    """Embeddings 4,382,544; 19.5 M of BERT blocks, 9.2 M of MobileBERT ones, 15.6 M of six and six."""
    space = make_space("elastic")
    ends = space.read({"layers": [{"block": "bert", "share": "none", "ffn": 132}]}).ends
    head = 528 * 128 + 3 * 128 + 30522
    assert ends.embedding + ends.vectors + ends.head - head == 4_382_544

    def counted(*blocks: tuple[str, int]) -> float:
        choices = [{"block": block, "share": "none", "ffn": ffn} for block, ffn in blocks]
        mobiles = sum(block == "mobile" for block, _ in blocks)
        whole = make_score("params").of(space.read({"layers": choices}))
        return whole - head - mobiles * (4 * 132 + 2 * 528)

    assert counted(*[("bert", 132)] * 12) == 4_382_544 + 12 * 1_259_412
    assert counted(*[("mobile", 132)] * 12) == 4_382_544 + 12 * 402_204
    mixed = [counted(*[("bert", 132)] * 6, *[("mobile", f)] * 6) for f in (132, 792)]
    assert mixed == [14_352_240, 15_401_640]
    assert counted(*[("bert", 264)] * 6, *[("mobile", 132)] * 6) == pytest.approx(15.2e6, rel=0.01)
    assert space.size() == 36**12


def test_a_grown_space_has_one_width_of_each_kind_of_each_layer() -> None:
    widths = [4 * (i % 3 + 1) for i in range(18)]
    space = make_space("elastic", **TINY, depth=3, widths=widths)
    (backbone,) = space.backbones()
    offered = [
        [(c["block"], c["share"], c["ffn"]) for ways in block.candidates.alternatives for c in ways]
        for block in backbone.blocks
    ]
    kinds = [(block, share) for block in ("bert", "mobile") for share in ("none", "kv", "qv")]
    for row, own in enumerate(offered):
        assert set(own) == {(*kind, width) for kind, width in zip(kinds, widths[6 * row :], strict=False)}
    assert space.size() == 6**3


@pytest.mark.parametrize("share", SHARED)
@pytest.mark.parametrize("name", NAMES)
def test_shared_projections_are_those_of_one_with_equal_matrices(name: str, share: str) -> None:
    space = make_space(name, **TINY)
    for block in space.settings["blocks"]:
        layers = [{"block": block, "share": kind, "ffn": 8} for kind in (share, "none")]
        shared, apart = (build(space.read({"layers": [layer]})).module for layer in layers)
        state = shared.state_dict()
        for wanted, used in zip("qkv", SHARED[share], strict=True):
            for key in [key for key in state if f".{used}." in key]:
                state.setdefault(key.replace(f".{used}.", f".{wanted}."), state[key])
        apart.load_state_dict(state)
        ids = torch.arange(12).reshape(2, 6)
        assert torch.allclose(shared(ids), apart(ids), atol=1e-6)


@given(st.integers(1, 5), st.integers(-2, 2))
def test_vectors_are_moved_over_tokens(t: int, by: int) -> None:
    tokens = torch.arange(1.0, t + 1)[None, :, None]
    moved = [float(place - by + 1) if 0 <= place - by < t else 0.0 for place in range(t)]
    assert later(tokens, by).flatten().tolist() == moved


@pytest.mark.parametrize(("name", "seen"), [("elastic", {2, 3, 4}), ("elastic-causal", {3, 4, 5})])
def test_a_token_is_seen_by_its_neighbours(name: str, seen: set[int]) -> None:
    space = make_space(name, **TINY)
    network = build(space.read({"layers": [{"block": "bert", "share": "none", "ffn": 4}]})).module
    embeddings = network.embeddings
    assert isinstance(embeddings, TrigramTokens)
    ids = torch.arange(8)[None]
    other = ids.clone()
    other[0, 3] = 30
    moved = (embeddings(ids) - embeddings(other)).abs().amax((0, 2)) > 0
    assert set(moved.nonzero().flatten().tolist()) == seen


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=portion(10))
@given(st.integers(1, 6), st.integers(0, 5))
def test_padding_changes_nothing(name: str, t: int, more: int) -> None:
    space = make_space(name, **TINY)
    layers = [{"block": block, "share": "kv", "ffn": 4} for block in space.settings["blocks"]]
    network = build(space.read({"layers": layers})).module
    ids = torch.randint(1, 40, (2, t + more), generator=torch.Generator().manual_seed(t))
    padding = torch.ones_like(ids)
    padding[:, t:] = 0

    def hidden(stack: Stack, ids: Tensor, padding: Tensor | None) -> Tensor:
        states: Tensor = stack.embeddings(ids, padding)
        for layer in stack.layers:
            states = layer(states, padding)
        return states

    assert torch.allclose(hidden(network, ids, padding)[:, :t], hidden(network, ids[:, :t], None), atol=1e-5)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"layers": []}, "layers must list 1 to"),
    ({"layers": ["bert"]}, "a layer must be an object, not 'bert'"),
    ({"layers": [{"block": "berd", "share": "none", "ffn": 4}]}, "block 'berd' is not known; did you mean"),
    ({"layers": [{"block": "llama", "share": "none", "ffn": 4}]}, "block 'llama' is not known"),
    ({"layers": [{"block": "bert", "share": "vo", "ffn": 4}]}, "share 'vo' is not known"),
    ({"layers": [{"block": "bert", "share": "none"}]}, "lacks 'ffn'"),
    ({"layers": [{"block": "bert", "share": "none", "ffn": 0}]}, "ffn must be an integer from 1"),
    (
        {"layers": [{"block": "mobile", "share": "none", "ffn": 4, "heads": 3}]},
        "width 4 of a mobile block is not divisible by 3 heads",
    ),
    (
        {"layers": [{"block": "bert", "share": "none", "ffn": 4, "heads": 4, "head_size": 5}]},
        "4 heads of 5 are wider than the 16",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("choices", "message"), REFUSED)
def test_layers_that_make_no_sense_are_refused(choices: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_space("elastic", **TINY).read(choices)
