"""The same model in several words: by letters, by numbers of layers, rounded, with a text part or without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from carvings import carve
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_families import TINY, random_model
from transformers import AutoConfig, AutoModelForCausalLM

from zerolm.carving.result import Carved
from zerolm.families.config import from_config
from zerolm.families.family import Cuttable
from zerolm.testing.families import stored_numbers

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
        network = AutoModelForCausalLM.from_config(AutoConfig.for_model("lfm2", **TINY["lfm2"] | changes))
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
    assert carved.kept is not None
    assert carved.kept.layers[-1].layer == 3
    config = json.loads((tmp_path / "child" / "config.json").read_text())
    assert config["layer_types"][-1] == "full_attention"
    network = AutoModelForCausalLM.from_pretrained(tmp_path / "child")
    assert stored_numbers(network) == carved.costs["child"]["params"]
