"""The space ``blocks``: what is shared, stacked or missing is counted, and a llama is one of them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from twin_costs import exact_costs

from zerolm.architecture import Architecture, Shapes
from zerolm.costs import CostModel
from zerolm.lab.spaces.blocks import SHARES, LlamaBlocks
from zerolm.scores import make_score, score_names, score_settings
from zerolm.settings import REQUIRED
from zerolm.solvers import search
from zerolm.spaces import make_space

PLAIN = {"depth": 2, "hidden": 64, "head_size": 8, "heads": 8, "ffn": 48}
LAYER = st.tuples(
    st.sampled_from(list(SHARES)), st.sampled_from((1, 2, 4, 8)), st.integers(0, 4), st.integers(1, 99)
)
COST_MODELS = st.builds(
    CostModel,
    context=st.integers(1, 4096),
    kv_bits=st.sampled_from((4, 8, 16)),
    bits=st.sampled_from((4, 16)),
)
STORED = {"none": (1, 1), "kv": (1, 0), "qk": (0, 1), "qv": (1, 0), "qkv": (0, 0)}
"""Matrices that are stored for keys and for values beside those of queries, by hand."""


def choices_of(layers: list[tuple[str, int, int, int]]) -> dict[str, Any]:
    return PLAIN | {
        "depth": len(layers),
        "share": [share for share, *_ in layers],
        "kv_heads": [kv if share in ("none", "kv") else 8 for share, kv, _, _ in layers],
        "ffn_stack": [stack for *_, stack, _ in layers],
        "ffn": [width if stack else 0 for *_, stack, width in layers],
    }


def counted(choices: dict[str, Any], vocab: int, model: CostModel) -> dict[str, int]:
    """The costs of a tied decoder from its choices alone."""
    d, size, heads = choices["hidden"], choices["head_size"], choices["heads"]
    q = heads * size
    matrices, norms, cached = list[int](), d, 0
    names = ("share", "kv_heads", "ffn", "ffn_stack")
    for share, kv_heads, ffn, stack in zip(*(choices[name] for name in names), strict=True):
        kv = kv_heads * size
        matrices += [q * d, *[kv * d] * sum(STORED[share]), d * q, *[ffn * d] * (3 * stack)]
        norms += d + stack * d
        cached += kv
    body = sum(matrices)
    groups = sum(-(-weights // model.group_size) for weights in matrices)
    return {
        "params": vocab * d + body + norms,
        "active_params": vocab * d + body + norms,
        "body_params": body + norms,
        "macs": body + vocab * d + 2 * model.context * q * choices["depth"],
        "kv_bytes": 2 * cached * model.context * model.kv_bits // 8,
        "weight_bytes": sum(-(-weights * model.bits // 8) for weights in matrices)
        + (0 if model.bits == 16 else 2 * groups)
        + 2 * (vocab * d + norms),
    }


@given(st.lists(LAYER, min_size=1, max_size=4), COST_MODELS)
def test_costs_are_those_of_what_is_stored(layers: list[tuple[str, int, int, int]], model: CostModel) -> None:
    choices = choices_of(layers)
    architecture = LlamaBlocks(vocab=100).read(choices)
    assert model.of(architecture) == exact_costs(architecture, model) == counted(choices, 100, model)


@given(st.integers(1, 4), st.sampled_from((1, 2, 4)), st.booleans())
def test_a_llama_is_one_of_them(depth: int, kv_heads: int, tied: bool) -> None:
    choices = PLAIN | {"depth": depth, "kv_heads": kv_heads}
    settings = {"vocab": 100, "positions": 32, "tied": tied}
    llama, blocks = make_space("llama", **settings), make_space("blocks", **settings)
    theirs, ours = llama.read(choices), blocks.read(choices)
    assert (ours.layers, ours.ends) == (theirs.layers, theirs.ends)
    assert blocks.config(ours) == llama.config(theirs)
    assert blocks.words(ours.choices) == llama.words(theirs.choices)


def test_the_defaults_hold_those_of_llama() -> None:
    """With one FFN and nothing shared it has as many architectures."""
    plain = make_space("blocks", shares=["none"], ffn_stack=[1])
    assert plain.size() == make_space("llama").size() < make_space("blocks").size()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share": "vk"}, "share 'vk' is not known; there are none, kv, qv, qk, qkv"),
        ({"share": 3}, "share 3 is not known"),
        ({"share": ["qk"]}, "share lists 1 layers, but the depth is 2"),
        ({"share": "qk", "kv_heads": 4}, "share qk needs as many KV heads as heads, 8, not 4"),
        ({"share": ["kv", "qkv"], "kv_heads": 2}, "share qkv needs as many KV heads as heads, 8, not 2"),
        ({"ffn": 0}, "ffn 0 and ffn_stack 1: both are 0 where there is no FFN"),
        ({"ffn_stack": 0}, "ffn 48 and ffn_stack 0: both are 0"),
        ({"ffn_stack": 65}, "ffn_stack must be an integer from 0 to 64, not 65"),
        ({"ffn": -1}, "ffn must be an integer from 0"),
        ({"kv_heads": 3}, "8 heads are not divisible by 3 KV heads"),
        ({"stack": 2}, "unknown field 'stack'"),
    ],
)
def test_choices_that_make_no_layer_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LlamaBlocks().read(PLAIN | change)


WORDS: list[tuple[dict[str, Any], str]] = [
    ({}, "2 x 64, heads 8, ffn 48"),
    ({"share": "qk", "ffn_stack": 2}, "2 x 64, heads 8, qk shared, 2 x ffn 48"),
    ({"share": "kv", "kv_heads": 2, "ffn": 0, "ffn_stack": 0}, "2 x 64, heads 8, kv 2, kv shared, no ffn"),
    (
        {"share": ["none", "qkv"], "ffn": [16, 0], "ffn_stack": [3, 0]},
        "2 x 64, heads 8, none + qkv shared, (3 x ffn 16) + (no ffn)",
    ),
]


def test_they_are_written_in_a_line() -> None:
    for change, words in WORDS:
        read = LlamaBlocks().read(PLAIN | change).choices
        assert LlamaBlocks.words(PLAIN | change) == LlamaBlocks.words(read) == words


def test_which_two_projections_are_one_is_told_apart_only_by_name() -> None:
    """Of as many KV heads as heads; the preferred way is the first that is asked for."""
    space = make_space(
        "blocks", depth=[4], hidden=[256], head_size=[64], ffn=[768], ffn_stack=[1], heads_per_kv=[1, 2],
        shares=["qv", "none", "kv", "qkv"],
    )  # fmt: skip
    (backbone,) = space.backbones()
    candidates = backbone.blocks[0].candidates
    pairs = zip(candidates.alternatives, candidates.layers, strict=True)
    whole = [(ways, layer) for ways, layer in pairs if ways[0]["kv_heads"] == 4]
    ways = {tuple(way["share"] for way in ways): len(layer.matrices) for ways, layer in whole}
    assert ways == {("qv", "kv"): 6, ("none",): 7, ("qkv",): 5}
    assert space.size() == candidates.ways == len(candidates) + 1 == 6
    told = [tuple(choice.values()) for choice in candidates.apart.choices]
    assert len(set(told)) == len(told) == 6
    assert sorted(map(str, told)) == sorted(
        str(tuple(way.values())) for ways in candidates.alternatives for way in ways
    )


@pytest.mark.parametrize("name", score_names())
def test_every_score_has_a_value_without_ffn(name: str) -> None:
    needed = {s.name: s.examples[0] for s in score_settings(name) if s.default is REQUIRED}
    score = make_score(name, **needed)
    bare = LlamaBlocks(vocab=100).read(PLAIN | {"ffn": 0, "ffn_stack": 0})
    assert np.isfinite(score.of(bare))
    assert (score.of(bare) == 0) == name.startswith(("geo", "shape_law"))


def test_a_score_that_is_nothing_everywhere_is_refused() -> None:
    space = make_space("blocks", ffn_stack=[0], depth=[4], hidden=[256])
    with pytest.raises(
        ValueError, match="geo is 0 for every architecture of blocks here; name another score"
    ):
        search(space, "geo")
    assert search(space, "stable_rank", compare=False).best[0].score > 0


def test_values_that_no_architecture_has_are_told() -> None:
    assert make_space("blocks").unused() == {}
    few = {"depth": [4], "hidden": [256], "ffn": [768], "ffn_stack": [1, 2], "heads_per_kv": [2]}
    space = make_space("blocks", **few, shares=["none", "qk"])
    assert space.unused() == {"shares": ["qk"], "ffn_stack": [2]}


def test_columns_mark_as_present_what_a_layer_has() -> None:
    """Else a sum over attention or FFN would count matrices that are not there."""
    space = make_space("blocks", depth=[4], hidden=[256], head_size=[64], ffn=[128, 768])
    (backbone,) = space.backbones()
    candidates = backbone.blocks[0].candidates
    listed, columns = Shapes.of(candidates.layers), candidates.shapes
    assert not columns.present.all()
    for marks in ("attention", "ffn"):
        assert not (getattr(columns, marks) & ~columns.present).any()
        np.testing.assert_array_equal(
            *((getattr(shapes, marks) * shapes.weights).sum(axis=1) for shapes in (listed, columns))
        )
        np.testing.assert_array_equal(*(getattr(shapes, marks).sum(axis=1) for shapes in (listed, columns)))


def stored(space: LlamaBlocks, change: dict[str, Any]) -> Architecture:
    return space.llama_form(space.read(PLAIN | change))[1]


def test_the_llama_form_says_what_copies_cost() -> None:
    """Two FFNs of 48 on a stream of 64: four layers, each with whole attention."""
    space = LlamaBlocks(vocab=100)
    plain, stacked, bare = (stored(space, change) for change in (
        {"share": "qkv"}, {"ffn_stack": 2, "kv_heads": 2}, {"ffn": 0, "ffn_stack": 0}
    ))  # fmt: skip
    assert plain.choices == PLAIN | {"kv_heads": 8}
    assert stacked.choices == PLAIN | {"depth": 4, "kv_heads": 2}
    assert bare.choices == PLAIN | {"kv_heads": 8, "ffn": 1}
    mixed = stored(space, {"kv_heads": [1, 2], "ffn": [16, 24], "ffn_stack": [1, 3]})
    assert mixed.choices == PLAIN | {"depth": 4, "kv_heads": 2, "ffn": 24}
