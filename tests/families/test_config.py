"""What transformers builds has exactly the parameters that were promised."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion

from zerolm.architecture import Architecture
from zerolm.costs import CostModel
from zerolm.families.config import from_config
from zerolm.spaces import SearchSpace, make_space

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def built_parameters(config: dict[str, Any]) -> int:
    """Parameters of the network that a configuration builds, tied ones once; no memory is taken."""
    kind = transformers.AutoModelForCausalLM
    if config["model_type"] == "bert":
        kind = transformers.AutoModelForMaskedLM
    sizes = {key: value for key, value in config.items() if key != "model_type"}
    with torch.device("meta"):
        network = kind.from_config(transformers.AutoConfig.for_model(config["model_type"], **sizes))
    return sum(parameter.numel() for parameter in network.parameters())


SPACES: dict[str, SearchSpace] = {
    "llama": make_space("llama", vocab=1000),
    "untied llama": make_space("llama", tied=False, positions=100),
    "llama with all heads": make_space("llama", heads_per_kv=[1], vocab=100),
    "mistral": make_space("llama", head_size=(48, 80), query_per_hidden=(0.25, 4), vocab=100),
    "qwen2": make_space("llama", qkv_bias=True, tied=False, vocab=100),
    "qwen3": make_space("qwen3", head_size=(64, 128), vocab=100),
    "gpt2-uniform": make_space("gpt2-uniform"),
    "small-headed gpt2": make_space("gpt2-uniform", head_size=[16, 32], vocab=1000, positions=50),
    "bert": make_space("bert"),
    "small-headed bert": make_space("bert", head_size=[32], vocab=1000, positions=50),
}


@pytest.mark.parametrize("name", SPACES)
@settings(max_examples=portion(20))
@given(data=st.data())
def test_a_configuration_builds_the_promised_parameters(name: str, data: st.DataObject) -> None:
    space = SPACES[name]
    backbone = data.draw(st.sampled_from([b for b in space.backbones() if b.depth <= 12]))
    pick = data.draw(st.integers(0, len(backbone.blocks[0].candidates) - 1))
    architecture = space.assemble(backbone, [[pick]])
    config = space.config(architecture)
    assert config is not None
    if name in ("qwen2", "qwen3", "bert"):
        assert config["model_type"] == name
    assert json.loads(json.dumps(config)) == config
    assert built_parameters(config) == CostModel().of(architecture)["params"]
    again = from_config(config)
    assert (again.layers, again.ends) == (architecture.layers, architecture.ends)


@pytest.mark.parametrize(("heads", "kind"), [(3, "mistral"), (4, "llama"), (2, "llama"), (6, "mistral")])
def test_queries_may_be_wider_or_narrower_than_hidden(heads: int, kind: str) -> None:
    """The class of llama needs heads that divide the width; that of mistral builds the others."""
    space = make_space("llama", vocab=100, query_per_hidden=(0.25, 4))
    choices = {"depth": 2, "hidden": 256, "head_size": 64, "heads": heads, "kv_heads": 1, "ffn": 512}
    architecture = space.read(choices)
    config = space.config(architecture)
    assert config is not None
    assert (config["model_type"], architecture.layers[0].query_width) == (kind, 64 * heads)
    assert built_parameters(config) == CostModel().of(architecture)["params"]


def test_spaces_without_a_stock_class_have_no_configuration() -> None:
    for name in ("gpt2", "transformer_xl", "flexibert"):
        space = make_space(name)
        backbone = next(space.backbones())
        architecture = space.assemble(backbone, [[0] * block.count for block in backbone.blocks])
        assert space.config(architecture) is None
    space = make_space("llama", per_layer=True)
    backbone = next(space.backbones())
    assert space.config(space.assemble(backbone, [[0, 1] + [0] * (backbone.depth - 2)])) is None
    assert space.config(space.assemble(backbone, [[1] * backbone.depth])) is not None


@st.composite
def readable(draw: st.DrawFn, space: SearchSpace) -> Architecture:
    """Anything that a uniform space reads: numbers or lists, KV heads given or left out."""
    depth, heads = draw(st.integers(1, 3)), draw(st.sampled_from((1, 2, 4)))
    choices: dict[str, Any] = {"depth": depth, "hidden": 64 * heads, "head_size": 64, "heads": heads}
    width = st.sampled_from((256, 512))
    choices["ffn"] = draw(width | st.lists(width, min_size=depth, max_size=depth))
    kv_heads = st.sampled_from([count for count in (1, 2, 4) if heads % count == 0])
    if space.name != "llama":
        kv_heads = st.just(heads)
    given_heads = draw(st.none() | kv_heads | st.lists(kv_heads, min_size=depth, max_size=depth))
    return space.read(choices if given_heads is None else {**choices, "kv_heads": given_heads})


@pytest.mark.parametrize("name", ["llama", "gpt2-uniform", "bert"])
@given(data=st.data())
def test_a_configuration_is_the_architecture_that_was_read(name: str, data: st.DataObject) -> None:
    space = make_space(name)
    architecture = data.draw(readable(space))
    config = space.config(architecture)
    if len(set(architecture.layers)) > 1:
        assert config is None
    else:
        assert config is not None
        assert from_config(config).layers == architecture.layers


@pytest.mark.parametrize("name", ["llama", "gpt2-uniform", "bert"])
@given(data=st.data())
def test_bounds_of_whatever_was_read_can_be_asked(name: str, data: st.DataObject) -> None:
    ranges = {"depth": [1, 2, 3], "hidden": [64, 128, 256], "ffn": [256, 512]}
    ratios = {"hidden_per_depth": [1.0, 1000.0], "ffn_per_hidden": [0.5, 10.0]}
    groups = {"heads_per_kv": [1, 2, 4]} if name == "llama" else {}
    space = make_space(name, **ranges, **ratios, **groups)
    for bound in space.bounds(data.draw(readable(space))):
        assert bound.name.split()[0] in space.settings


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3", "gpt2", "bert"])
@settings(max_examples=portion(6))
@given(data=st.data())
def test_configurations_of_transformers_are_read(kind: str, data: st.DataObject) -> None:
    """Saved in full, and saved as the difference from the defaults."""
    heads, size = data.draw(st.sampled_from((2, 4))), data.draw(st.sampled_from((8, 16)))
    tied = data.draw(st.booleans()) if kind != "bert" else True
    if kind == "gpt2":
        sizes = {"n_embd": heads * size, "n_head": heads, "n_layer": 2, "n_inner": None, "n_positions": 50}
    else:
        sizes = {"hidden_size": heads * size, "num_attention_heads": heads, "num_hidden_layers": 2}
        sizes["intermediate_size"] = data.draw(st.sampled_from((64, 96)))
    if kind not in ("gpt2", "bert"):
        sizes["num_key_value_heads"] = data.draw(st.sampled_from((1, heads)))
        sizes["head_dim"] = data.draw(st.sampled_from((size, 32)))
    config = transformers.AutoConfig.for_model(kind, vocab_size=100, tie_word_embeddings=tied, **sizes)
    promised = built_parameters(config.to_dict())
    for saved in (config.to_dict(), config.to_diff_dict()):
        architecture = from_config(json.loads(json.dumps(saved)))
        assert CostModel().of(architecture)["params"] == promised


def test_an_untied_bert_is_read_with_its_own_decoder() -> None:
    """Weights and bias: transformers ties the bias of the decoder only where it ties the weights."""
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        tie_word_embeddings=False,
    ).to_dict()  # fmt: skip
    assert CostModel().of(from_config(config))["params"] == built_parameters(config)
