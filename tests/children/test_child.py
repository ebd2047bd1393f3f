"""What a child must be beyond its logits: windows of layers, heads, floors, and nothing in it that runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from carvings import carve, rebuild
from safetensors.torch import load_file, save_file
from tiny import saved

from zerolm.carving.formats import FORMATS
from zerolm.carving.request import Methods
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint
from zerolm.units.kept_units import Cut, LayerCut, dimensions
from zerolm.units.pruning import Repaired


def changed(folder: Path, drop: str = "", **settings: Any) -> Path:
    """The folder, its configuration with other settings and without one field."""
    file = folder / "config.json"
    config = json.loads(file.read_text()) | settings
    config.pop(drop, None)
    file.write_text(json.dumps(config))
    return folder


def test_layers_attend_as_they_did_when_others_have_gone(tmp_path: Path) -> None:
    """Where a configuration lists no kinds, the stock class tells them by a layer's number."""
    parent = changed(saved(tmp_path / "parent", "gemma2"), drop="layer_types", sliding_window=4)
    carve(parent, tmp_path / "first", keep_ffn=0.5)
    recipe = json.loads((tmp_path / "first" / "recipe.json").read_text())
    recipe["layers"] = recipe["layers"][1:]
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    rebuild(tmp_path / "recipe.json", parent, tmp_path / "child")
    whole, child = (
        transformers.AutoConfig.from_pretrained(folder).layer_types for folder in (parent, tmp_path / "child")
    )
    assert list(child) == list(whole)[1:]
    assert len(set(whole)) == 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("wrong", ["model.layers.1.mlp.up_proj.weight", "lm_head.weight"])
def test_a_wrong_weight_on_the_disk_is_found(dtype: str, wrong: str, tmp_path: Path) -> None:
    parent = Checkpoint.open(saved(tmp_path / "parent", "llama", dtype=dtype))
    whole = Cut.whole(dimensions(parent))
    cut = Cut(whole.parent, tuple(LayerCut.of(x.layer, x["groups"], np.arange(20)) for x in whole.layers))
    carve(parent.folder, tmp_path / "child", keep_ffn=0.5, criterion="prefix")
    run = Session(parent, Methods("prefix"), lambda text: None)
    assert FORMATS["hf"].verified(run, cut, Repaired(), tmp_path / "child").relative <= 1e-4
    file = tmp_path / "child" / "model.safetensors"
    weights = load_file(file)
    weights[wrong][0] *= 0.98
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(ValueError, match="differs"):
        FORMATS["hf"].verified(run, cut, Repaired(), tmp_path / "child")


FLOORS: dict[str, tuple[str, dict[str, Any], str]] = {
    "neurons": ("llama", {"keep_ffn": 0.25, "multiple_of": 41}, "no size is left"),
    "ways": ("llama", {"keep_ffn": 0.75, "tensor_parallel": 4}, "no size is left"),
    "steps": ("llama", {"budgets": {"max_params": "0.99x"}, "multiple_of": 64}, "no size is left"),
    "no ways": ("llama", {"keep_ffn": 0.5, "tensor_parallel": 0}, "must be at least 1, not 0"),
    "no space": ("llama", {"space": "foo"}, "space 'foo' is not known"),
    "a share as a number": ("llama", {"budgets": {"max_params": 0.8}}, "neither an integer nor a share"),
    "no format": ("llama", {"keep_ffn": 0.5, "form": "onnx"}, "format 'onnx' is not known"),
    "tokens without end": ("llama", {"keep_ffn": 0.5, "text": "random", "sequences": 10**12}, "at most"),
    "a seed without end": ("llama", {"keep_ffn": 0.5, "seed": 2**70}, "the seed must lie"),
    "no head": ("llama_body", {"keep_ffn": 0.5}, "without a language-model head"),
}


@pytest.mark.parametrize("case", FLOORS)
def test_what_cannot_be_is_refused(case: str, tmp_path: Path) -> None:
    name, wishes, words = FLOORS[case]
    parent = saved(tmp_path / "parent", name)
    with pytest.raises(ValueError, match=words) as told:
        carve(parent, tmp_path / "child", **wishes)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "child").exists()


def test_heads_that_the_class_refuses_are_not_planned(tmp_path: Path) -> None:
    """Of 12 heads in groups of one at a hidden size of 48, 8 divide it and 9 to 11 do not."""
    settings = transformers.Gemma2Config(
        vocab_size=64, hidden_size=48, num_hidden_layers=2, num_attention_heads=12, num_key_value_heads=12,
        intermediate_size=40, head_dim=8, query_pre_attn_scalar=8,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    transformers.Gemma2ForCausalLM(settings).save_pretrained(tmp_path / "parent")
    for wishes in ({"budgets": {"max_kv_bytes": "0.8x"}}, {"keep_heads": 0.75}):
        found = carve(tmp_path / "parent", tmp_path / str(len(wishes)), force=True, **wishes)  # type: ignore[arg-type]
        assert {size.heads for size in found.widths} == {8}


HOSTILE: dict[str, dict[str, Any]] = {
    "quantized": {"quantization_config": {"quant_method": "gptq"}},
    "a kernel": {"_attn_implementation": "evil/kernel"},
    "no such activation": {"hidden_act": "boom"},
    "a norm of words": {"rms_norm_eps": "small"},
    "classes as a number": {"architectures": 5},
    "too few kinds": {"layer_types": ["full_attention"]},
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("text", [None, "random"])
def test_hostile_configurations(case: str, text: str | None, tmp_path: Path) -> None:
    parent = changed(saved(tmp_path / "parent", "llama"), **HOSTILE[case])
    with pytest.raises(ValueError) as told:  # noqa: PT011 - each says something of its own
        carve(parent, tmp_path / "child", keep_ffn=0.5, text=text, sequences=8, length=16)
    assert "\n" not in str(told.value)
    assert not (tmp_path / "child").exists()


def test_a_child_of_transformers_needs_no_gguf() -> None:
    """The packages that only files of llama.cpp need are an extra."""
    modules = "sys, zerolm.carving.session, zerolm.carving.write_child"
    code = f"import {modules}; assert 'gguf' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
