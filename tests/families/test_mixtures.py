"""Folders of mixtures as they are published, and with faults."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from carvings import carve
from changed_folders import configured, replaced
from covering import chosen
from safetensors.torch import load_file, save_file
from tiny_families import TINY, random_model, saved, stock_config, stock_model
from tiny_mixtures import MIXTURES
from torch import nn
from transformers import AutoModelForCausalLM

from zerolm.checkpoints import Checkpoint
from zerolm.cli import main
from zerolm.costs import CostModel
from zerolm.families.config import from_config
from zerolm.families.known import families
from zerolm.testing import stored_numbers

FILE = "model.safetensors"
TOKENS: dict[str, Any] = {"text": "random", "sequences": 4, "length": 12}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random_model("deepseek_v3").save_pretrained(tmp_path / "parent")
    return tmp_path / "parent"


def changed(folder: Path, tensors: dict[str, Any], **config: Any) -> Path:
    return configured(replaced(folder, tensors), **config)


def test_layers_that_foretell_more_tokens_are_left_out(folder: Path, tmp_path: Path) -> None:
    more = {
        f"model.layers.4.{name}": torch.zeros(3, 2) for name in ("eh_proj.weight", "shared_head.norm.weight")
    }
    changed(folder, more, num_nextn_predict_layers=1)
    carve(folder, tmp_path / "child", repair="none", keep_heads=0.5)
    assert json.loads((tmp_path / "child" / "config.json").read_text())["num_nextn_predict_layers"] == 0
    assert not [name for name in load_file(tmp_path / "child" / FILE) if name.startswith("model.layers.4.")]
    with pytest.raises(ValueError, match=r"'model.layers.40x.a' is none of a deepseek_v3"):
        Checkpoint.open(changed(folder, {"model.layers.40x.a": torch.zeros(1)}))


INSIDE = "model.layers.2.mlp"
FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a missing expert": ({f"{INSIDE}.experts.5.up_proj.weight": None}, {}, r"experts.5.up_proj.* missing"),
    "an expert too many": (
        {f"{INSIDE}.experts.8.up_proj.weight": torch.zeros(24, 48)},
        {},
        "experts.8.up_proj.* is none of",
    ),
    "fewer experts than routed": ({}, {"n_routed_experts": 6}, r"implies 6 \(experts\) x 48 \(hidden\)"),
    "more experts chosen than there are": ({}, {"num_experts_per_tok": 9}, "9 experts are chosen of 8"),
    "a dense layer stored as a mixture": ({}, {"first_k_dense_replace": 3}, r"layers.2.mlp.* is missing"),
    "a router's bias of another length": (
        {f"{INSIDE}.gate.e_score_correction_bias": torch.zeros(7)},
        {},
        "e_score_correction_bias.* shape",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(fault: str, folder: Path, tmp_path: Path) -> None:
    tensors, config, message = FAULTS[fault]
    with pytest.raises(ValueError, match=message) as caught:
        carve(changed(folder, tensors, **config), tmp_path / "child", keep_heads=0.5)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "child").exists()


def test_latent_attention_keeps_few_numbers_of_a_token(folder: Path) -> None:
    """24 of the latent and 8 of the rotated key, in 4 layers, 2 bytes each."""
    config = json.loads((folder / "config.json").read_text())
    assert CostModel(context=10).of(from_config(config))["kv_bytes"] == 4 * 10 * 2 * (24 + 8)


def met(network: nn.Module, experts: int, active: int) -> int:
    """Return the parameters that a token uses, counted in the stock class: of what experts have, a share.

    They are the tensors with one matrix for each, and the biases beside these.
    """
    routed = [
        p
        for name, p in network.named_parameters()
        if (p.dim() == 3 and "conv" not in name) or (name.endswith("proj_bias") and ".experts." in name)
    ]
    assert all(len(p) == experts for p in routed)
    return stored_numbers(network) - sum(p[active:].numel() for p in routed)


@pytest.mark.parametrize("kind", chosen(MIXTURES))
def test_active_parameters_are_all_but_idle_experts(kind: str, tmp_path: Path) -> None:
    """Whatever is shared, or in a dense layer, is met."""
    network = stock_model(stock_config(kind))
    network.save_pretrained(tmp_path)
    architecture = from_config(json.loads((tmp_path / "config.json").read_text()))
    costs = CostModel().of(architecture)
    experts, active = (architecture.choices[name] for name in ("experts", "active"))
    assert (experts, active) == (8, 2)
    assert costs["active_params"] == met(network, experts, active) < costs["params"]


ACTIVE = {
    "mistralai/Mixtral-8x7B-v0.1": "12.9", "mistralai/Mixtral-8x22B-v0.1": "39", "Qwen/Qwen3-30B-A3B": "3",
    "Qwen/Qwen3-235B-A22B": "22", "Qwen/Qwen1.5-MoE-A2.7B": "2.7", "allenai/OLMoE-1B-7B-0924": "1.3",
    "microsoft/Phi-3.5-MoE-instruct": "6.6",
}  # fmt: skip
"""Billions of active parameters, as the models' authors say."""


@pytest.mark.parametrize("name", ACTIVE)
def test_published_mixtures_have_the_active_parameters_that_are_said(name: str) -> None:
    published = json.loads((Path(__file__).parent / "published_configs.json").read_text("utf-8"))
    config = next(one["config"] for one in published if one["name"] == name)
    digits = len(ACTIVE[name].partition(".")[2])
    counted = CostModel().of(from_config(config))["active_params"] / 1e9
    assert f"{counted:.{digits}f}" == ACTIVE[name]


def test_a_budget_of_active_parameters_is_kept(folder: Path, tmp_path: Path) -> None:
    carved = carve(folder, tmp_path / "child", repair="none", budgets={"max_active_params": "0.8x"}, **TOKENS)
    child = carved.costs["child"]["active_params"]
    assert child <= 0.8 * carved.costs["parent"]["active_params"]
    config = json.loads((tmp_path / "child" / "config.json").read_text())
    assert CostModel().of(from_config(config))["active_params"] == child
    with pytest.raises(ValueError, match="max_active_params 10 would have to be at least"):
        carve(folder, tmp_path / "other", budgets={"max_active_params": 10}, **TOKENS)


def test_active_parameters_are_told(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", str(folder)]) == 0
    assert "active parameters " in capsys.readouterr().out
    assert main(["score", str(saved(tmp_path / "dense", "llama"))]) == 0
    assert "active" not in capsys.readouterr().out


ALL: dict[str, Any] = {"keep_layers": 0.75, "keep_heads": 0.5, "keep_ffn": 0.5, "repair": "none"}


def in_one(folder: Path) -> Path:
    """Return the folder with all experts of a layer in one tensor, gates before up projections."""
    stored = load_file(folder / FILE)
    stacked: dict[str, Any] = {name: x for name, x in stored.items() if ".experts." not in name}
    for place in {name.partition(".experts.")[0] for name in stored.keys() - stacked.keys()}:
        each = [
            {role: stored[f"{place}.experts.{expert}.{role}_proj.weight"] for role in ("gate", "up", "down")}
            for expert in range(8)
        ]
        both = [torch.cat([matrices["gate"], matrices["up"]]) for matrices in each]
        stacked[f"{place}.experts.gate_up_proj"] = torch.stack(both)
        stacked[f"{place}.experts.down_proj"] = torch.stack([matrices["down"] for matrices in each])
    save_file(stacked, folder / FILE, {"format": "pt"})
    return folder


@torch.no_grad()
@pytest.mark.parametrize("kind", [n for n in TINY if families()[n].tensors.layouts])
def test_experts_may_be_in_one_tensor(kind: str, tmp_path: Path) -> None:
    """As published: the child has them so too, opens, and sends what that of many tensors does."""
    sent = []
    for form in ("many", "one"):
        random_model(kind).save_pretrained(tmp_path / form)
        folder = tmp_path / form if form == "many" else in_one(tmp_path / form)
        carve(folder, tmp_path / f"{form}_child", **ALL, **TOKENS)
        stored = load_file(tmp_path / f"{form}_child" / FILE)
        assert any(name.endswith("experts.gate_up_proj") for name in stored) is (form == "one")
        network = AutoModelForCausalLM.from_pretrained(tmp_path / f"{form}_child").eval()
        sent.append(network(input_ids=torch.arange(10)[None], use_cache=False).logits)
    assert torch.allclose(*sent, rtol=1e-5, atol=1e-5)


def test_experts_in_both_ways_are_refused(tmp_path: Path) -> None:
    random_model("qwen3_5_moe_text").save_pretrained(tmp_path)
    many, first = load_file(tmp_path / FILE), "model.layers.1.mlp.experts."
    one = load_file(in_one(tmp_path) / FILE)
    apart = {name: x for name, x in many.items() if name.startswith(first)}
    with pytest.raises(ValueError, match=r"'model.layers.1.mlp.experts.\d+.\w+.weight' is none of a qwen3_5"):
        Checkpoint.open(changed(tmp_path, apart))
    together = dict.fromkeys(name for name in one if name.startswith(first))
    with pytest.raises(ValueError, match=rf"'{first}.*' is missing"):
        Checkpoint.open(changed(tmp_path, apart | together))
