"""Models that see: their text part is counted and cut, and all that sees goes into the child as it is."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from carvings import carve
from safetensors.torch import load_file, save_file
from tiny_families import DECODER, DERIVED, GATED_DELTA, MIXED, TINY

from zerolm.carving.experts.fewer_experts import FewerExperts
from zerolm.carving.experts.masked_parent import masked
from zerolm.checkpoints import Checkpoint
from zerolm.costs import CostModel
from zerolm.families.config import from_config
from zerolm.testing.families import stored_numbers

VISION = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "image_size": 28, "patch_size": 14,
}  # fmt: skip
GEMMA = DECODER | {"model_type": "gemma3_text", "query_pre_attn_scalar": 16, "sliding_window": 8}
WRAPPERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3": (
        "Gemma3ForConditionalGeneration",
        {"text_config": GEMMA | {"layer_types": MIXED}, "vision_config": VISION},
    ),
    "mistral3": (
        "Mistral3ForConditionalGeneration",
        {
            "text_config": DECODER | {"model_type": "mistral"},
            "vision_config": VISION | {"model_type": "pixtral", "head_dim": 8},
            "tie_word_embeddings": False,
        },
    ),
}
SEEING = {
    "depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": 48,
    "patch_size": 4, "num_position_embeddings": 16,
}  # fmt: skip
WRAPPERS["qwen3_5"] = (
    "Qwen3_5ForConditionalGeneration",
    {"text_config": DECODER | GATED_DELTA, "vision_config": SEEING},
)
WRAPPERS["qwen3_5_moe"] = (
    "Qwen3_5MoeForConditionalGeneration",
    {"text_config": TINY["qwen3_5_moe_text"], "vision_config": SEEING},
)
WRAPPERS["gemma4"] = (
    "Gemma4ForConditionalGeneration",
    {
        "text_config": TINY["gemma4_text"] | {"pad_token_id": 0},
        "vision_config": VISION | {"num_key_value_heads": 2, "head_dim": 8, "patch_size": 14},
        "audio_config": None,
    },
)
DEEP: dict[str, Any] = {
    "text_config": DECODER | {"num_hidden_layers": 5, "attention_bias": True},
    "vision_config": SEEING | {"depth": 3, "deepstack_visual_indexes": [0, 1, 2]},
}  # fmt: skip
WRAPPERS["qwen3_vl"] = ("Qwen3VLForConditionalGeneration", DEEP)
WRAPPERS["qwen3_vl_moe"] = (
    "Qwen3VLMoeForConditionalGeneration",
    DEEP | {"text_config": TINY["qwen3_moe"] | {"num_hidden_layers": 5}, "tie_word_embeddings": False},
)
ROTATED = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e5, "mrope_section": [1, 1, 2]}}
WRAPPERS["qwen2_5_vl"] = (
    "Qwen2_5_VLForConditionalGeneration",
    {"text_config": DERIVED | ROTATED, "vision_config": SEEING | {"fullatt_block_indexes": [0]}},
)
WRAPPERS["qwen2_vl"] = (
    "Qwen2VLForConditionalGeneration",
    {
        "text_config": DERIVED | ROTATED,
        "vision_config": {
            "depth": 1,
            "embed_dim": 16,
            "num_heads": 2,
            "mlp_ratio": 1,
            "hidden_size": 48,
            "patch_size": 4,
        },
    },
)
WRAPPERS["kimi_k25"] = (
    "Kimi_K25ForConditionalGeneration",
    {
        "text_config": TINY["deepseek_v3"] | {"model_type": "deepseek_v3"},
        "vision_config": VISION | {"patch_size": 4, "pos_emb_height": 4, "pos_emb_width": 4},
        "projection_hidden_size": 16,
        "tie_word_embeddings": False,
    },
)
WRAPPERS["llama4"] = (
    "Llama4ForConditionalGeneration",
    {
        "text_config": TINY["llama4_text"],
        "vision_config": VISION
        | {"vision_output_dim": 16, "projector_input_dim": 16, "projector_output_dim": 16},
        "tie_word_embeddings": False,
    },
)
TOKENS: dict[str, Any] = {"text": "random", "sequences": 4, "length": 12}
IDS = torch.randint(2, 60, (2, 12), generator=torch.Generator().manual_seed(1))


def opened(folder: Path, kind: str) -> Any:
    network, report = getattr(transformers, WRAPPERS[kind][0]).from_pretrained(
        folder, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    return network.eval()


def text_of(network: Any) -> Any:
    """Return the body of the text part."""
    return network.model.language_model if hasattr(network, "model") else network.language_model.model


@torch.no_grad()
def sent(network: Any) -> torch.Tensor:
    return network(input_ids=IDS, use_cache=False).logits  # type: ignore[no-any-return]


def as_published(name: str) -> str:
    """Return a kimi's name of a tensor: transformers writes layers as ``blocks``, which it does not read."""
    return name.replace("language_model.model.blocks.", "language_model.model.layers.")


@pytest.fixture(params=WRAPPERS)
def parent(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoint:
    name, parts = WRAPPERS[request.param]
    config = transformers.AutoConfig.for_model(request.param, **parts)
    network, generator = getattr(transformers, name)(config), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    network.save_pretrained(tmp_path / "parent")
    if request.param == "kimi_k25":
        file = tmp_path / "parent" / "model.safetensors"
        tensors = {as_published(name): tensor for name, tensor in load_file(file).items()}
        save_file(tensors, file, {"format": "pt"})
    return Checkpoint.open(tmp_path / "parent")


def test_the_text_part_is_counted(parent: Checkpoint) -> None:
    network = opened(parent.folder, parent.family.name)
    seeing = sum(parent.tensors[name].count for name in parent.layout.carried)
    assert seeing
    assert parent.layout.slots.keys() | set(parent.layout.carried) == parent.tensors.keys()
    built = stored_numbers(network)
    assert CostModel().of(from_config(parent.config))["params"] == built - seeing


@pytest.mark.parametrize(
    "cut",
    [
        {"keep_heads": 0.5, "keep_ffn": 0.5},
        {"keep_layers": 0.67, "keep_heads": 0.5, "keep_ffn": 0.5, **TOKENS},
    ],
    ids=["by weights", "all"],
)
def test_a_child_is_its_parent_without_what_was_cut(
    cut: dict[str, Any], parent: Checkpoint, tmp_path: Path
) -> None:
    kind, cut = parent.family.name, dict(cut)
    for unit in ("heads", "ffn"):
        if f"keep_{unit}" in cut and not getattr(parent.family.cut, unit):
            with pytest.raises(ValueError, match=f"{unit} cannot be cut here: {parent.family.cut.note}"):
                carve(parent.folder, tmp_path / "child", repair="none", **{f"keep_{unit}": 0.5})
            del cut[f"keep_{unit}"]
    if not cut:
        return
    carved = carve(parent.folder, tmp_path / "child", repair="none", **cut)
    assert carved.kept is not None
    network = opened(parent.folder, kind)
    body = text_of(network)
    layers = body.layers
    for kept in carved.kept.layers:
        modules = dict(layers[kept.layer].named_modules())
        shared = "mlp.shared_expert.down_proj"
        down = shared if shared in modules else "mlp.down_proj"
        for name, units, whole in (
            ("self_attn.o_proj", kept["groups"], parent.layout.kv_heads),
            (down, kept["ffn"], 40),
        ):
            if name not in modules:  # linear attention stays
                continue
            weight = modules[name].weight.data
            weight.view(len(weight), whole, -1)[:, [i for i in range(whole) if i not in units]] = 0
    staying = [kept.layer for kept in carved.kept.layers]
    body.layers = torch.nn.ModuleList(layers[i] for i in staying)
    text = network.config.text_config
    text.num_hidden_layers = len(staying)
    if getattr(text, "layer_types", None):
        text.layer_types = [text.layer_types[i] for i in staying]
    child, wanted = sent(opened(tmp_path / "child", kind)), sent(network)
    assert float((child - wanted).abs().max() / wanted.abs().max()) <= 1e-5
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path / "child", parent.folder))
    assert all(torch.equal(ours[name], theirs[name]) for name in parent.layout.carried)


@torch.no_grad()
def test_experts_stored_as_inputs_and_outputs_are_turned(tmp_path: Path) -> None:
    """As published: transformers turns them by their shape, and its own folders have them the other way."""
    name, parts = WRAPPERS["qwen3_vl_moe"]
    parts = parts | {"text_config": parts["text_config"] | {"moe_intermediate_size": 20}}
    config = transformers.AutoConfig.for_model("qwen3_vl_moe", **parts)
    getattr(transformers, name)(config).save_pretrained(tmp_path / "plain")
    shutil.copytree(tmp_path / "plain", tmp_path / "turned")
    file = tmp_path / "turned" / "model.safetensors"
    stored = load_file(file)
    for expert in [name for name in stored if ".mlp.experts." in name]:
        stored[expert] = stored[expert].transpose(1, 2).contiguous()
    save_file(stored, file, {"format": "pt"})
    sizes = []
    for form in ("plain", "turned"):
        sizes_asked: dict[str, Any] = {"keep_layers": 0.8, "keep_heads": 0.5, "repair": "none", **TOKENS}
        carved = carve(tmp_path / form, tmp_path / f"{form}_child", **sizes_asked)
        assert carved.verified is not None
        tensors = Checkpoint.open(tmp_path / f"{form}_child").tensors
        sizes.append(tensors["model.language_model.layers.0.mlp.experts.down_proj"].shape)
    assert sizes == [(8, 48, 20), (8, 20, 48)]
    ours, theirs = (sent(opened(tmp_path / f"{form}_child", "qwen3_vl_moe")) for form in ("plain", "turned"))
    # a turned matrix is summed in another order, which a least-squares repair by 48 tokens would enlarge
    assert float((ours - theirs).abs().max() / theirs.abs().max()) <= 1e-5
    narrower = []
    for form in ("plain", "turned"):
        flags: dict[str, Any] = {"keep_experts": "4", "keep_expert_ffn": "8", "criterion": "reap", **TOKENS}
        carved = carve(tmp_path / form, tmp_path / f"{form}_narrow", repair="least-squares", **flags)
        assert carved.verified is not None
        assert carved.verified.by == "outputs"
        narrower.append(load_file(tmp_path / f"{form}_narrow" / "model.safetensors"))
    for name, value in narrower[0].items():
        turned = narrower[1][name]
        is_turned = "experts" in name
        assert torch.equal(value, turned.mT if is_turned else turned) or "down_proj" in name
        assert value.shape == (turned.mT if is_turned else turned).shape


def test_the_stream_stays(parent: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="hidden cannot be cut here"):
        carve(parent.folder, tmp_path / "child", keep_hidden=0.75)
    assert not (tmp_path / "child").exists()


def test_a_text_part_that_contradicts_the_whole_is_told(parent: Checkpoint) -> None:
    file = parent.folder / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"num_hidden_layers": 7}))
    with pytest.raises(ValueError, match=r"num_hidden_layers is 7, and \d in text_config"):
        Checkpoint.open(parent.folder)


def test_an_unknown_tensor_beside_what_sees_is_named(parent: Checkpoint) -> None:
    file = parent.folder / "model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, "audio_tower.weight": torch.zeros(3)}, file, {"format": "pt"})
    with pytest.raises(ValueError, match=re.escape("tensor 'audio_tower.weight' is none of a")):
        Checkpoint.open(parent.folder)


@torch.no_grad()
def test_a_child_with_fewer_experts_is_its_parent_that_cannot_choose_them(
    parent: Checkpoint, tmp_path: Path
) -> None:
    kind = parent.family.name
    if not parent.family.has_experts:
        with pytest.raises(ValueError, match="has no experts to take out"):
            carve(parent.folder, tmp_path / "child", keep_experts="4", criterion="random")
        return
    carved = carve(parent.folder, tmp_path / "child", keep_experts="4", criterion="random")
    assert carved.experts is not None
    kept = {row.layer: np.array(row.kept) for row in carved.experts.layers}
    network, fewer = opened(parent.folder, kind), FewerExperts(parent, kept)
    with masked({layer: text_of(network).layers[layer] for layer in kept}, fewer):
        wanted = sent(network)
    child = sent(opened(tmp_path / "child", kind))
    assert float((child - wanted).abs().max() / wanted.abs().max()) <= 1e-5
    assert float((child - sent(network)).abs().max() / wanted.abs().max()) > 1e-3
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path / "child", parent.folder))
    assert all(torch.equal(ours[name], theirs[name]) for name in parent.layout.carried)
    narrow: dict[str, Any] = {"keep_experts": "4", "keep_expert_ffn": "8", "criterion": "random"}
    if kind == "llama4":
        with pytest.raises(ValueError, match="have their width in common with"):
            carve(parent.folder, tmp_path / "narrower", **narrow)
        return
    carved = carve(parent.folder, tmp_path / "narrower", **narrow)
    assert carved.verified is not None
    assert carved.verified.by == "outputs"
