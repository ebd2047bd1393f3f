"""Folders of mixtures as they are published, and with faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from carvings import carve
from safetensors.torch import load_file, save_file
from tiny_families import random_model

from zerolm.checkpoints import Checkpoint
from zerolm.costs import CostModel
from zerolm.families.config import from_config

FILE = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random_model("deepseek_v3").save_pretrained(tmp_path / "parent")
    return tmp_path / "parent"


def changed(folder: Path, tensors: dict[str, Any], **config: Any) -> Path:
    """Return the folder with tensors put in, or taken out where they are None, and fields set."""
    stored = {**load_file(folder / FILE), **tensors}
    save_file({name: x for name, x in stored.items() if x is not None}, folder / FILE, {"format": "pt"})
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    return folder


def test_layers_that_foretell_more_tokens_are_left_out(folder: Path, tmp_path: Path) -> None:
    more = {
        f"model.layers.4.{name}": torch.zeros(3, 2) for name in ("eh_proj.weight", "shared_head.norm.weight")
    }
    changed(folder, more, num_nextn_predict_layers=1)
    carve(folder, tmp_path / "child", repair="none", keep_heads=0.5)
    child = json.loads((tmp_path / "child" / "config.json").read_text())
    assert child["num_nextn_predict_layers"] == 0
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
    costs = CostModel(context=10).of(from_config(config))
    assert costs["kv_bytes"] == 4 * 10 * 2 * (24 + 8)


def test_a_token_meets_some_experts_only(folder: Path) -> None:
    """Two layers have 8 experts of 3 x 24 x 48, of which 2 are met."""
    config = json.loads((folder / "config.json").read_text())
    all_met = CostModel(context=10).of(from_config(config | {"num_experts_per_tok": 8}))
    costs = CostModel(context=10).of(from_config(config))
    assert all_met["macs"] - costs["macs"] == 2 * 6 * 3 * 24 * 48
    assert all_met["params"] == costs["params"]
