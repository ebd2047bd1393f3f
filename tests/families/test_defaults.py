"""Every size that a configuration leaves out is what transformers makes of it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from covering import chosen, with_tensors
from tiny_families import MIXED, TINY
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

from zerolm.cli import main
from zerolm.costs import CostModel
from zerolm.families.config import from_config
from zerolm.families.known import families
from zerolm.testing import stored_numbers

DECODER: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 32,
    "num_key_value_heads": 2, "intermediate_size": 40, "head_dim": 16, "max_position_embeddings": 32,
    "tie_word_embeddings": False, "sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1,
    "attention_bias": True, "mlp_bias": True,
}  # fmt: skip
GPT2 = {
    "vocab_size": 64, "n_embd": 48, "n_layer": 3, "n_head": 6, "n_inner": 40, "n_positions": 32,
    "tie_word_embeddings": False,
}  # fmt: skip
BERT = {
    "vocab_size": 64, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
    "intermediate_size": 40, "max_position_embeddings": 32, "type_vocab_size": 3,
    "tie_word_embeddings": False,
}  # fmt: skip
FAMILIES = with_tensors()
UNBUILT: dict[str, dict[str, Any]] = {
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
}
"""What the stock class needs beside its defaults, with which alone it builds nothing."""


NEEDED: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "dots1": {"n_shared_experts": 2, "num_experts_per_tok": 6, "n_routed_experts": 64},
    "glm4_moe": {"head_dim": 128},
}
"""What the defaults leave open: no number of experts, or heads that do not divide the hidden size."""
LISTED = ("cwm",)
"""All but the first of each four layers have a window: no rule says so, and a list is asked for."""
REFUSED_NULLS = (
    ("ernie4_5", "use_bias"), ("cohere", "use_qk_norm"), ("falcon", "bias"),
    ("falcon", "new_decoder_architecture"), ("exaone4", "sliding_window"),
    ("nomic_bert", "tie_word_embeddings"), ("nomic_bert", "pad_token_id"), ("opt", "hidden_size"),
)  # fmt: skip
"""Where the stock class takes null for false, divides by zero, has projections that are not described, or
refuses what no size follows from."""


def fields_of(name: str) -> set[str]:
    """Return the fields that a family's document reads."""
    config = families()[name].config
    sizes = [config.tied, *config.sizes.values(), *([config.window.size] if config.window else [])]
    return {size.field for size in sizes if size.field} | config.flags.keys()


CONFIGS = {
    name: {field: value for field, value in config.items() if field in fields_of(name)}
    for name, tiny in TINY.items()
    if (config := tiny | {"tie_word_embeddings": False})
}
CONFIGS = {name: config | {"pad_token_id": 0} for name, config in CONFIGS.items()}
CONFIGS |= {name: DECODER for name in ("mistral", "qwen2", "qwen3", "gemma2")} | {"gpt2": GPT2, "bert": BERT}
CONFIGS["llama"] = DECODER | {"head_dim": 2}
CONFIGS["llama"].pop("sliding_window")
DENSE = [n for n in FAMILIES if not (families()[n].has_experts or families()[n].config.kinds)]
"""Families whose layers are all alike: of others, defaults are tested, and no single field."""
for _name in DENSE:
    _config = CONFIGS[_name]
    if "num_key_value_heads" in _config:  # so many heads that every default divides them
        _config |= {"num_attention_heads": 32, "hidden_size": 64}
for _name in LISTED:
    CONFIGS[_name]["layer_types"] = MIXED
CONFIGS["electra"] |= {"num_attention_heads": 4}  # which its default hidden size has room for
CONFIGS["helium"] |= {"hidden_size": 2560, "num_attention_heads": 20, "head_dim": 128}  # as its defaults


def built(kind: str, config: dict[str, Any]) -> Any:
    """Return the network that transformers builds, without memory; None where it refuses."""
    maker = AutoModelForMaskedLM if families()[kind].task == "masked" else AutoModelForCausalLM
    try:
        with torch.device("meta"):
            return maker.from_config(AutoConfig.for_model(kind, **config))
    except Exception:  # of its strict configurations, and of the arithmetic with what is missing
        return None


def windows(config: Any) -> list[int]:
    """Return the window of each layer as the stock masks and caches have it."""
    window = getattr(config, "sliding_window", None) or 0
    window = 2 * window + 1 if hasattr(config, "local_attention") else window  # on both sides
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    return [window if kind == "sliding_attention" else 0 for kind in kinds]


@pytest.mark.parametrize("change", ["drop", "null"])
@pytest.mark.parametrize("kind", chosen(DENSE))
def test_fields_left_out_count_as_transformers_builds(kind: str, change: str) -> None:
    for field in CONFIGS[kind]:
        if field != "layer_types" and (kind, field) not in REFUSED_NULLS:
            check_left_out(kind, field, change)


def check_left_out(kind: str, field: str, change: str) -> None:
    """Compare what is read of a configuration without a field, or with null, with what is built of it."""
    config = {name: value for name, value in CONFIGS[kind].items() if name != field}
    config |= {field: None} if change == "null" else {}
    network = built(kind, config)
    if network is None:
        if change == "null":
            with pytest.raises(ValueError, match=r"possible|true or false|only"):
                from_config({"model_type": kind, **config})
        return
    architecture = from_config({"model_type": kind, **config})
    assert CostModel().of(architecture)["params"] == stored_numbers(network)
    assert [layer.window for layer in architecture.layers] == windows(network.config)
    assert from_config(json.loads(network.config.to_json_string())).layers == architecture.layers


@pytest.mark.parametrize("kind", chosen(FAMILIES))
def test_every_default_is_that_of_transformers(kind: str) -> None:
    family, stock = families()[kind].config, AutoConfig.for_model(kind)
    stock.allow_global_per_layer_attribute_access = True  # of one whose layers have several sizes
    for size in (*family.sizes.values(), family.tied):
        if size.field and hasattr(stock, size.field) and not isinstance(size.default, str):
            value = getattr(stock, size.field)
            assert size.default == (size.null if value is None else value), size.field
        for other in size.also if kind in DENSE else ():
            assert stock.attribute_map[other] == size.field
    for flag, default in family.flags.items():
        assert getattr(stock, flag, default) is default
    for name, value in family.only.items():
        assert getattr(stock, name, None) in (None, value)
    if family.window:
        given = {family.window.switch: True} if family.window.switch else {}
        opened = AutoConfig.for_model(kind, **given)
        assert getattr(opened, str(family.window.size.field), None) in (None, family.window.size.default)
        first = family.window.first
        assert first is None or kind in LISTED or getattr(stock, str(first.field)) == first.default
    more = UNBUILT.get(kind, {})
    assert not more or built(kind, {}) is None
    more = more | NEEDED.get(kind, {})
    network = built(kind, more)
    least = {"model_type": kind, **more}
    if kind in LISTED:
        with pytest.raises(ValueError, match="the configuration has layer_types None"):
            from_config(least)
        least["layer_types"] = network.config.layer_types
    nothing = from_config(least)
    assert CostModel().of(nothing)["params"] == stored_numbers(network)
    assert [layer.window for layer in nothing.layers] == windows(network.config)


def score(tmp_path: Path, capsys: pytest.CaptureFixture[str], config: dict[str, Any], *options: str) -> Any:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    status = main(["score", str(path), "--json", *options])
    out, error = capsys.readouterr()
    return json.loads(out)["costs"] if status == 0 else (status, error)


@pytest.mark.parametrize("context", [1024, 4096, 32768])
def test_windows_bound_caches(context: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The KV bytes of mistral at 32k tokens are those of its window of 4,096, an eighth."""
    sizes = {"num_hidden_layers": 4, "sliding_window": 4096}
    costs = score(tmp_path, capsys, {"model_type": "mistral", **sizes}, "--context", str(context))
    kept = min(context, 4096)
    assert costs["kv_bytes"] == 4 * 2 * 8 * 128 * 2 * kept
    free = score(
        tmp_path, capsys, {"model_type": "mistral", **sizes, "sliding_window": None}, "--context",
        str(context),
    )  # fmt: skip
    assert free["kv_bytes"] == 4 * 2 * 8 * 128 * 2 * context
    assert free["macs"] - costs["macs"] == 4 * 2 * 32 * 128 * (context - kept)


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "gemma2"])
def test_layers_with_and_without_a_window(kind: str) -> None:
    """Both ways to say so: a list of kinds, and a rule."""
    config = {"model_type": kind, "num_hidden_layers": 4, "sliding_window": 64, "max_window_layers": 3}
    listed = ["full_attention", "sliding_attention", "full_attention", "full_attention"]
    bound = {"use_sliding_window": True} if kind != "gemma2" else {}
    assert [layer.window for layer in from_config(config | bound | {"layer_types": listed}).layers] == [
        0, 64, 0, 0,
    ]  # fmt: skip
    ruled = [64, 0, 64, 0] if kind == "gemma2" else [0, 0, 0, 64]
    assert [layer.window for layer in from_config(config | bound).layers] == ruled
    if bound:
        assert not any(layer.window for layer in from_config(config | {"layer_types": listed}).layers)


@pytest.mark.parametrize("more", [{}, {"sliding_window_pattern": 2}, {"sliding_window": 64}])
def test_gemma3_needs_no_list_of_layers(more: dict[str, Any]) -> None:
    """Published files of Gemma 3 leave the kinds of layers to the rule of the stock class."""
    config = {**CONFIGS["gemma3_text"], "num_hidden_layers": 13, **more}
    config.pop("layer_types", None)
    network = built("gemma3_text", config)
    read = from_config({"model_type": "gemma3_text", **config})
    assert [layer.window for layer in read.layers] == windows(network.config)
    assert len(set(windows(network.config))) == 2


REFUSED = [
    ("llama", {"tie_word_embeddings": "no"}, "tie_word_embeddings must be true or false, not 'no'"),
    ("llama", {"tie_word_embeddings": 0}, "tie_word_embeddings must be true or false, not 0"),
    ("llama", {"attention_bias": "yes"}, "attention_bias must be true or false"),
    ("qwen2", {"use_sliding_window": 1}, "use_sliding_window must be true or false"),
    ("mistral", {"sliding_window": 0}, "sliding_window 0; 1 to"),
    ("mistral", {"sliding_window": "8"}, "sliding_window '8'; 1 to"),
    ("gemma2", {"layer_types": ["sliding_attention"]}, "3 layers and 1 layer_types"),
    ("gemma2", {"layer_types": ["sliding_attention", "linear", 3]}, "not a list of full_attention and"),
    ("gpt2", {"add_cross_attention": True}, "add_cross_attention is True; only gpt2 with False"),
    ("gpt2", {"hidden_size": 64}, "n_embd 48 and hidden_size"),
    ("bert", {"type_vocab_size": 2.0}, "type_vocab_size 2.0; 1 to"),
    *(
        (kind, {field: value}, f"{field} .*; 1 to")
        for kind, field in (
            ("llama", "max_position_embeddings"), ("gpt2", "n_positions"), ("bert", "hidden_size")
        )
        for value in (-1, 0, 10**15, True, 1.5, "many", [], {})
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "change", "message"), REFUSED)
def test_what_is_no_size_is_one_line(
    kind: str, change: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, error = score(tmp_path, capsys, {"model_type": kind, **CONFIGS[kind], **change})
    assert status == 2
    assert re.search(message, error)
    assert error.count("\n") == 1
    assert len(error) < 300
