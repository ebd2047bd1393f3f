"""Models that see: their text part is counted and cut, and all that sees goes into the child as it is."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from carvings import carve
from covering import chosen, in_folders
from safetensors.torch import load_file, save_file
from tiny_seeing import SEEING, saved_seeing

from zerolm.carving.experts.fewer_experts import FewerExperts
from zerolm.carving.experts.masked_parent import masked
from zerolm.checkpoints import Checkpoint
from zerolm.costs import CostModel
from zerolm.families.config import from_config
from zerolm.testing import stored_numbers

TOKENS: dict[str, Any] = {"text": "random", "sequences": 4, "length": 12}
IDS = torch.randint(2, 60, (2, 12), generator=torch.Generator().manual_seed(1))


def opened(folder: Path, kind: str) -> Any:
    network, report = getattr(transformers, SEEING[kind][0]).from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    return network.eval()


def text_of(network: Any) -> Any:
    """Return the body of the text part."""
    return network.model.language_model if hasattr(network, "model") else network.language_model.model


@torch.no_grad()
def sent(network: Any) -> torch.Tensor:
    return network(input_ids=IDS, use_cache=False).logits  # type: ignore[no-any-return]


@pytest.fixture(scope="module", params=chosen(SEEING, in_folders))
def parent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return Checkpoint.open(saved_seeing(tmp_path_factory.mktemp("parent") / "parent", request.param))


def test_the_text_part_is_counted(parent: Checkpoint) -> None:
    network = opened(parent.folder, parent.family.name)
    seeing = sum(parent.tensors[name].count for name in parent.layout.carried)
    assert seeing
    assert parent.layout.slots.keys() | set(parent.layout.carried) == parent.tensors.keys()
    built = stored_numbers(network)
    assert CostModel().of(from_config(parent.config))["params"] == built - seeing


def test_a_child_is_its_parent_without_what_was_cut(parent: Checkpoint, tmp_path: Path) -> None:
    kind, cut = parent.family.name, {"keep_layers": 0.67, "keep_heads": 0.5, "keep_ffn": 0.5, **TOKENS}
    for unit in ("heads", "ffn"):
        if not getattr(parent.family.cut, unit):
            with pytest.raises(ValueError, match=f"{unit} cannot be cut here: {parent.family.cut.note}"):
                carve(parent.folder, tmp_path / "child", repair="none", **{f"keep_{unit}": 0.5})
            del cut[f"keep_{unit}"]
    carved = carve(parent.folder, tmp_path / "child", repair="none", **cut)
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
    saved_seeing(tmp_path / "plain", "qwen3_vl_moe", moe_intermediate_size=20)
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


def test_an_unknown_tensor_beside_what_sees_is_named(tmp_path: Path) -> None:
    file = saved_seeing(tmp_path, "gemma3") / "model.safetensors"
    save_file({**load_file(file), "audio_tower.weight": torch.zeros(3)}, file, {"format": "pt"})
    with pytest.raises(ValueError, match=re.escape("tensor 'audio_tower.weight' is none of a")):
        Checkpoint.open(tmp_path)


@torch.no_grad()
def test_fewer_experts_are_a_parent_that_cannot_choose_them(parent: Checkpoint, tmp_path: Path) -> None:
    kind = parent.family.name
    if not parent.family.has_experts:
        with pytest.raises(ValueError, match="has no experts to take out"):
            carve(parent.folder, tmp_path / "child", keep_experts="4", criterion="random")
        return
    carved = carve(parent.folder, tmp_path / "child", keep_experts="4", criterion="random")
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
    assert carved.verified.by == "outputs"
