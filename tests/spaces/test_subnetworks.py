"""Sub-networks of a parent as a search space: counted as the parent's family counts, read as written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_families import TINY

from zerolm.families.config import from_config
from zerolm.spaces import make_space
from zerolm.spaces.subnetworks import SlicedSpace, config_text, ffn_sizes, heads_of

SPACES = {
    "llama": "sliced-decoder", "qwen3": "sliced-decoder", "gpt2": "sliced-decoder", "bert": "sliced-encoder",
}  # fmt: skip


def sliced(family: str, **settings: Any) -> SlicedSpace:
    config = {"model_type": family, **TINY[family]}
    made = make_space(SPACES[family], parent_config=config_text(config), **settings)
    assert isinstance(made, SlicedSpace)
    return made


@pytest.mark.parametrize("family", SPACES)
def test_the_whole_network_is_the_parent(family: str) -> None:
    space = sliced(family)
    whole = space.read({"kv_heads": space.sizes.kv_heads, "ffn": space.sizes.ffn})
    parent = from_config({"model_type": family, **TINY[family]})
    assert (whole.layers, whole.ends) == (parent.layers, parent.ends)


@pytest.mark.parametrize("family", SPACES)
def test_a_layer_is_that_of_a_smaller_parent(family: str) -> None:
    """Of as many heads of the same size and as wide an FFN, where a configuration can say so."""
    space = sliced(family)
    one = space.read({"kv_heads": 1, "ffn": 7})
    heads, size = heads_of(one)
    layer = one.layers[0]
    assert size == space.sizes.head_size
    assert heads == [space.sizes.heads // space.sizes.kv_heads] * space.sizes.depth
    assert layer.kv_width == size
    assert {m.rows if m.cols == layer.width else m.cols for m in layer.matrices if m.role == "ffn"} == {7}
    assert {m.cols for m in layer.matrices if m.name == "o"} == {heads[0] * size}


@given(st.data())
def test_each_layer_has_sizes_of_its_own(data: st.DataObject) -> None:
    space = sliced("llama")
    depth, parent = space.sizes.depth, space.sizes
    kv = data.draw(st.lists(st.integers(1, parent.kv_heads), min_size=depth, max_size=depth))
    ffn = data.draw(st.lists(st.integers(1, parent.ffn), min_size=depth, max_size=depth))
    one = space.read({"kv_heads": kv, "ffn": ffn})
    assert [layer.kv_width // parent.head_size for layer in one.layers] == kv
    assert [layer.matrices[4].rows for layer in one.layers] == ffn
    assert space.read(json.loads(json.dumps(one.choices))) == one
    assert space.words(one.choices).count("/") == (0 if len(set(kv)) == 1 else depth - 1) + (
        0 if len(set(ffn)) == 1 else depth - 1
    )


def test_lists_may_be_those_of_each_layer() -> None:
    depth = sliced("llama").sizes.depth
    space = sliced("llama", kv_heads=["1", *["1/2"] * (depth - 1)], ffn=["8/16/32"])
    assert space.size() == 2 ** (depth - 1) * 3**depth
    assert [groups for groups, _ in space.options] == [(1,), *[(1, 2)] * (depth - 1)]
    assert type(space)(**space.settings).settings == space.settings


@given(st.integers(1, 20000))
def test_widths_are_64_in_even_steps(whole: int) -> None:
    sizes = ffn_sizes(whole)
    assert sizes[-1] == whole
    assert sizes[0] >= 1
    assert min(whole, 64) <= len(sizes) <= 128


WRONG = {
    "no JSON": ({"parent_config": "{"}, "parent_config of space 'sliced-decoder'"),
    "no object": ({"parent_config": "[1]"}, "it is no JSON object"),
    "no family": ({"parent_config": "{}"}, "parent_config of space"),
    "an encoder": (
        {"parent_config": json.dumps({"model_type": "bert", **TINY["bert"]})},
        "predicts masked words",
    ),
    "too many lists": ({"ffn": ["8", "16"]}, "ffn has 2 lists; one for all, or"),
    "a wide one": ({"ffn": ["99999"]}, "sizes with slashes from 1 to"),
    "none": ({"kv_heads": ["0"]}, "kv_heads has '0'"),
    "words": ({"kv_heads": ["all"]}, "kv_heads has 'all'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_settings_are_refused(name: str) -> None:
    settings, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        make_space("sliced-decoder", **settings)


def test_more_than_the_parent_has_is_refused() -> None:
    space = sliced("llama")
    with pytest.raises(ValueError, match="kv_heads must be an integer from 1 to"):
        space.read({"kv_heads": space.sizes.kv_heads + 1, "ffn": 8})
    with pytest.raises(ValueError, match="ffn lists 2 layers, but the depth is"):
        space.read({"kv_heads": 1, "ffn": [8] * 2})
