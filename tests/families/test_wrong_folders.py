"""Folders that are no model of their family: one line that names the tensor or the field, nothing written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_families import saved

from zerolm.cli import main

Tensors = dict[str, torch.Tensor]
EXPERTS = "model.layers.2.mlp.experts"
QUERY = "model.layers.1.self_attn.q_proj.weight"
UP = "model.layers.0.mlp.up_proj.weight"


def tensors(change: Callable[[Tensors], Any]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        stored = load_file(folder / "model.safetensors")
        change(stored)
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})

    return damage


def config(**fields: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        document = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(document | fields))

    return damage


def stacked(stored: Tensors) -> None:
    """Put the experts of one layer into a tensor of all, those of the others stay one by one."""
    parts = {
        part: [stored.pop(f"{EXPERTS}.{expert}.{part}_proj.weight") for expert in range(8)]
        for part in ("gate", "up", "down")
    }
    both = [torch.cat(pair) for pair in zip(parts["gate"], parts["up"], strict=True)]
    stored[f"{EXPERTS}.gate_up_proj"] = torch.stack(both)
    stored[f"{EXPERTS}.down_proj"] = torch.stack(parts["down"])


def in_eight_bits(stored: Tensors) -> None:
    stored[UP] = stored[UP].to(torch.float8_e4m3fn)


WRONG: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "layouts mixed": ("qwen3_moe", tensors(stacked), f"'{EXPERTS}.0.gate_proj.weight' is missing"),
    "an expert less": (
        "qwen3_moe",
        tensors(lambda stored: stored.pop(f"{EXPERTS}.7.up_proj.weight")),
        f"'{EXPERTS}.7.up_proj.weight' is missing",
    ),
    "an expert more": (
        "qwen3_moe",
        tensors(lambda stored: stored.update({f"{EXPERTS}.8.up_proj.weight": torch.zeros(24, 48)})),
        f"'{EXPERTS}.8.up_proj.weight' is none of a qwen3_moe model",
    ),
    "fewer experts than routed": (
        "qwen3_moe",
        config(num_local_experts=6, num_experts=6),
        "has shape [8, 48], the configuration implies 6 (experts) x 48 (hidden)",
    ),
    "prefixes of two kinds": (
        "gemma3_text",
        tensors(lambda stored: stored.update({f"language_model.{QUERY}": stored.pop(QUERY)})),
        f"tensor '{QUERY}' is missing",
    ),
    "a list of layers too short": (
        "gemma3_text",
        config(layer_types=["full_attention"] * 2),
        "it has 3 layers and 2 layer_types",
    ),
    "a kind of layer that there is not": (
        "gemma3_text",
        config(layer_types=["full_attention", "sliding", "full_attention"]),
        "not a list of full_attention and sliding_attention",
    ),
    "a kind without its tensors": (
        "lfm2",
        config(layer_types=["full_attention"] * 3),
        "tensor 'model.layers.0.self_attn.q_proj.weight' is missing",
    ),
    "a quantised folder": (
        "llama",
        config(quantization_config={"quant_method": "fp8"}),
        "quantization_config asks for",
    ),
    "a quantised tensor": ("llama", tensors(in_eight_bits), f"tensor '{UP}' is F8_E4M3; read are BF16"),
    "code of its own": (
        "llama",
        config(model_type="mine", auto_map={"AutoModelForCausalLM": "modeling.Mine"}),
        "model_type 'mine' is not known",
    ),
}


@pytest.mark.parametrize("fault", WRONG)
def test_it_is_named_and_nothing_is_written(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, damage, message = WRONG[fault]
    folder = saved(tmp_path / "parent", kind)
    damage(folder)
    capsys.readouterr()
    cut = ["--keep-layers", "0.67", "--text", "random"]
    assert main(["carve", str(folder), *cut, "--out", str(tmp_path / "child"), "-q"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert message in lines[0]
    assert [path.name for path in tmp_path.iterdir()] == ["parent"]
