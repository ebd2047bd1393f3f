"""Layouts of the checkpoints that transformers writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny import saved

from zerolm.checkpoints import Checkpoint, family_of


def test_the_four_kinds_of_axes(tmp_path: Path) -> None:
    layout = Checkpoint.open(saved(tmp_path, "qwen3")).layout
    sizes = {"q": 96, "kv": 32, "head": 16, "ffn": 40, "hidden": 48, "vocab": 64, "positions": 32768}
    assert layout.sizes == sizes
    axes = {role: layout.slots[name].axes for role, name in layout.layer(2).items()}
    assert axes["q"] == ("q", "hidden")
    assert axes["v"] == ("kv", "hidden")
    assert axes["o"] == ("hidden", "q")
    assert axes["q_norm"] == ("head",)
    assert axes["down"] == ("hidden", "ffn")
    assert layout.name("q", 3) is None
    assert layout.name("head") == "lm_head.weight"


def test_fused_and_transposed_projections(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(saved(tmp_path, "gpt2"))
    layout = checkpoint.layout
    name = layout.name("q+k+v", 1)
    assert name
    assert layout.slots[name].transposed
    assert layout.slots[name].axes == ("hidden", "q+kv+kv")
    parts = {part.role: (part.axis, part.along, part.axes) for part in layout.slots[name].parts}
    assert parts["q"] == (1, slice(0, 48), ("hidden", "q"))
    assert parts["k"] == (1, slice(48, 96), ("hidden", "kv"))
    assert parts["v"] == (1, slice(96, 144), ("hidden", "kv"))
    assert layout.part("k", 1) == (name, layout.slots[name].parts[1])
    assert layout.part("k_bias", 1) == (
        "transformer.h.1.attn.c_attn.bias",
        layout.slots[name[:-6] + "bias"].parts[1],
    )
    assert layout.ffn == 192
    assert layout.slots["transformer.wte.weight"].transposed is False


def test_buffers_of_old_gpt2s(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = saved(tmp_path, "gpt2") / "model.safetensors"
    bare = {name.removeprefix("transformer."): tensor for name, tensor in load_file(file).items()}
    masks = {f"h.{layer}.attn.bias": torch.ones(1, 1, 32, 32) for layer in range(3)}
    save_file(bare | masks, file)
    layout = Checkpoint.open(tmp_path).layout
    assert layout.slots.keys() == bare.keys()
    assert layout.name("down", 2) == "h.2.mlp.c_proj.weight"


def test_names_of_old_berts(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    saved(tmp_path, "bert_masked")
    file = tmp_path / "model.safetensors"
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    renamed = load_file(file)
    for new, name in old.items():
        renamed = {tensor.replace(new, name): value for tensor, value in renamed.items()}
    renamed["bert.embeddings.position_ids"] = torch.arange(32)[None]
    save_file(renamed, file)
    layout = Checkpoint.open(tmp_path).layout
    assert layout.name("ffn_post_norm", 0) == "bert.encoder.layer.0.output.LayerNorm.gamma"


def test_a_family_that_is_not_known() -> None:
    with pytest.raises(
        ValueError, match="model_type 'rwkv' is not known; there are afmoe, apertus, arcee, bamba"
    ):
        family_of({"model_type": "rwkv"})
    with pytest.raises(ValueError, match="has no model_type"):
        family_of({})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 4}, "tensor 'model.layers.3.input_layernorm.weight' is missing"),
        ({"num_hidden_layers": 2}, "'model.layers.2.* is none of a llama model"),
        (
            {"intermediate_size": 41},
            r"shape \[40, 48\], the configuration implies 41 \(ffn\) x 48 \(hidden\)",
        ),
        ({"num_key_value_heads": 4}, "num_attention_heads 6 is not divisible by num_key_value_heads 4"),
        ({"num_key_value_heads": None}, r"implies 48 \(kv\) x 48 \(hidden\)"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers 1000000000000; 1 to"),
        ({"attention_bias": True}, "q_proj.bias' is missing"),
    ],
)
def test_configurations_that_do_not_fit(change: dict[str, object], message: str, tmp_path: Path) -> None:
    saved(tmp_path, "llama")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ValueError, match=message):
        Checkpoint.open(tmp_path)


def test_trained_models(models_folder: Path) -> None:
    decoder = Checkpoint.open(models_folder / "pydec")
    assert sum(tensor.count for tensor in decoder.tensors.values()) == 7_344_384
    assert (decoder.layout.kv_heads, decoder.layout.ffn, decoder.layout.tied) == (4, 768, True)
    encoder = Checkpoint.open(models_folder / "pyenc")
    assert sum(tensor.count for tensor in encoder.tensors.values()) == 6_869_504
    assert {"1_Pooling/config.json", "modules.json"} <= {str(path) for path in encoder.other_files()}
