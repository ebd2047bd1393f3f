"""Configurations in all their spellings: what transformers builds of them has the promised parameters."""

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_families
import torch
import transformers
from carvings import carve
from covering import chosen
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion
from tiny import MODELS, saved
from tiny_families import TINY, random_model
from tiny_mixtures import MIXTURES

from zerolm.architecture import Architecture
from zerolm.carving.result import Carved
from zerolm.checkpoints import Checkpoint
from zerolm.cli import main
from zerolm.costs import COSTS, CostModel
from zerolm.families.config import from_config
from zerolm.families.family import Cuttable
from zerolm.planning.sizes import costs_of
from zerolm.spaces import SearchSpace, make_space
from zerolm.testing import stored_numbers


def built_parameters(config: dict[str, Any]) -> int:
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
        assert from_config(config).layers == architecture.layers


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
    for document in (config.to_dict(), config.to_diff_dict()):
        architecture = from_config(json.loads(json.dumps(document)))
        assert CostModel().of(architecture)["params"] == promised


def test_an_untied_bert_is_read_with_its_own_decoder() -> None:
    """Weights and bias: transformers ties the bias of the decoder only where it ties the weights."""
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        tie_word_embeddings=False,
    ).to_dict()  # fmt: skip
    assert CostModel().of(from_config(config))["params"] == built_parameters(config)


WITH_HEADS = [name for name in MODELS if not name.endswith(("_body", "_classes", "_wide")) and name != "bert"]


def costs(command: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["costs"]


@pytest.mark.parametrize("name", WITH_HEADS)
@pytest.mark.parametrize("context", ["4", "1024"])
def test_score_and_carve_count_alike(
    name: str, context: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both at 16 bits; a next-sentence head and a pooler are in no count of ``score``."""
    folder = saved(tmp_path, name)
    options = ["--context", context, "--bits", "16"]
    scored = costs(["score", str(folder), *options], capsys)
    parent = costs(["carve", str(folder), "--keep-ffn", "1", *options], capsys)["parent"]
    for cost in COSTS:
        if name == "bert_untied" and cost in ("params", "active_params", "weight_bytes", "macs"):
            assert scored[cost] <= parent[cost]
        else:
            assert scored[cost] == parent[cost], cost


@pytest.mark.parametrize("kind", chosen(TINY))
def test_a_file_costs_what_its_configuration_does(kind: str, tmp_path: Path) -> None:
    """Windows of 8 tokens, in families that have them, are shorter than the context."""
    checkpoint, model = Checkpoint.open(tiny_families.saved(tmp_path, kind)), CostModel(context=16)
    configured = model.of_task(checkpoint.family.task).of(from_config(checkpoint.config))
    assert costs_of(checkpoint, model) == configured


def test_a_layer_remembers_what_its_kind_does() -> None:
    """Of a hybrid with a sublayer a layer: attention keys and values, Mamba a state, an FFN nothing."""
    layers = from_config({"model_type": "nemotron_h", **MIXTURES["nemotron_h"]}).layers
    keeps = [(layer.kv_width > 0, layer.state > 0) for layer in layers]
    mamba, attention, ffn = (False, True), (True, False), (False, False)
    assert keeps == [mamba, attention, ffn, ffn, attention, ffn]


LETTERS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
TOKENS: dict[str, Any] = {"text": "random", "sequences": 4, "length": 12}


def config_of(kind: str, **changes: Any) -> dict[str, Any]:
    return {"model_type": kind, **TINY[kind], **changes}


@given(st.text("".join(LETTERS), min_size=1, max_size=12))
def test_letters_are_a_list_of_kinds(pattern: str) -> None:
    config = config_of("nemotron_h")
    del config["layers_block_type"]
    listed = from_config(config | {"layers_block_type": [LETTERS[letter] for letter in pattern]})
    assert from_config(config | {"hybrid_override_pattern": pattern}) == listed
    assert listed.depth == len(pattern)
    with pytest.raises(ValueError, match=r"hybrid_override_pattern is .*, not a text of M E"):
        from_config(config | {"hybrid_override_pattern": f"{pattern}x"})


@given(st.lists(st.sampled_from(["sliding_attention", "full_attention"]), max_size=7), st.integers(1, 4))
def test_numbers_of_layers_say_what_a_field_for_all_does(kinds: list[str], groups: int) -> None:
    kinds = [*kinds, "full_attention"]
    at_once = {"global_head_dim": 24, "num_global_key_value_heads": groups}
    by_number = {
        str(n): {"head_dim": 24, "num_key_value_heads": groups}
        for n, kind in enumerate(kinds)
        if kind == "full_attention"
    }
    config = config_of("gemma4_text", layer_types=kinds, num_hidden_layers=len(kinds), num_key_value_heads=12)
    config |= {"num_attention_heads": 12}
    for name in at_once:
        del config[name]
    assert from_config(config | {"per_layer_config": by_number}) == from_config(config | at_once)
    other = {**by_number, str(len(kinds)): by_number[str(len(kinds) - 1)]}
    with pytest.raises(ValueError, match="per_layer_config is of other layers than those of full"):
        from_config(config | {"per_layer_config": other})
    with pytest.raises(ValueError, match=r"per_layer_config is .*, not the same"):
        from_config(config | {"per_layer_config": {**by_number, "0": {"head_dim": 8}, "1": {"head_dim": 9}}})


@settings(deadline=None, max_examples=20)
@given(st.integers(3, 400), st.sampled_from([0.5, 1.0, 1.3]), st.integers(1, 64))
def test_a_rounded_width_is_that_of_the_stock_class(width: int, factor: float, multiple: int) -> None:
    changes = {
        "intermediate_size": width, "block_ffn_dim_multiplier": factor, "block_multiple_of": multiple,
        "block_auto_adjust_ff_dim": True,
    }  # fmt: skip
    with torch.device("meta"):
        network = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model("lfm2", **TINY["lfm2"] | changes)
        )
    built = network.model.layers[0].feed_forward.w1.out_features
    assert from_config(config_of("lfm2", **changes)).choices["ffn"] == built


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen2_5_vl"])
def test_sizes_may_stand_in_the_text_part_or_beside_it(kind: str) -> None:
    text = {name: value for name, value in TINY["qwen2"].items() if name != "head_dim"}
    nested = from_config({"model_type": kind, "text_config": text})
    assert from_config({"model_type": kind, **text}) == nested
    assert nested.choices["hidden"] == 48


def test_sizes_that_must_be_equal_are_named() -> None:
    with pytest.raises(ValueError, match="word_embed_proj_dim 32 is not hidden_size 48; only opt where"):
        from_config(config_of("opt", word_embed_proj_dim=32))


@given(st.integers(0, 4), st.integers(0, 4), st.integers(1, 12))
def test_layers_that_stay_are_the_first_and_the_last(first: int, last: int, depth: int) -> None:
    cut = Cuttable(True, True, True, "kept", "", keeps_first=first, keeps_last=last)
    expected = {n for n in range(depth) if n < first or n >= depth - last}
    assert cut.required_layers(depth) == expected


def test_the_last_layer_of_a_gemma4_stays(tmp_path: Path) -> None:
    """Its stock class makes it attend to all tokens, whatever the list says."""
    random_model("gemma4_text").save_pretrained(tmp_path / "parent")
    carved: Carved = carve(tmp_path / "parent", tmp_path / "child", repair="none", keep_layers=0.5, **TOKENS)
    assert carved.kept.layers[-1].layer == 3
    config = json.loads((tmp_path / "child" / "config.json").read_text())
    assert config["layer_types"][-1] == "full_attention"
    network = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "child")
    assert stored_numbers(network) == carved.costs["child"]["params"]
