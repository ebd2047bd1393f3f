"""Experts of parents that are stored quantised: bytes that stay, the masked parent, the stock class."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve
from changed_folders import configured, replaced
from packed_mixtures import FP8, INT4, WAYS, packed_mixture, plain_twin
from refusals import Zerolm, refused
from safetensors.torch import load_file, save_file
from saved_mixtures import kept_in, logits_of_stock
from transformers import AutoModelForCausalLM

from zerolm.carving.experts.fewer_experts import renumbered

FILE = "model.safetensors"
BY_CHANCE: dict[str, Any] = {"keep_experts": "0.5", "criterion": "random", "seed": 3}
TOKENS: dict[str, Any] = {"text": "random", "sequences": 4, "length": 12}


@torch.no_grad()
@pytest.mark.parametrize("way", WAYS)
def test_stored_tensors_are_the_parents_and_send_what_the_masked_does(way: str, tmp_path: Path) -> None:
    """Names and rows are found from the recipe alone; torch alone dequantises both for stock classes."""
    folder, out = packed_mixture(tmp_path / "parent", way), tmp_path / "child"
    carved = carve(folder, out, **BY_CHANCE)
    assert carved.verified.by == "outputs"
    parent, child = load_file(folder / FILE), load_file(out / FILE)
    wanted, experts = {}, {layer: kept.tolist() for layer, kept in kept_in(out).items()}
    for name, tensor in parent.items():
        parts = name.split(".")
        layer = int(parts[2]) if parts[1] == "layers" else -1
        kept = experts.get(layer)
        if kept is None:
            wanted[name] = tensor
        elif ".experts." in name and parts[5].isdecimal():
            if int(parts[5]) in kept:
                place = kept.index(int(parts[5]))
                wanted[".".join([*parts[:5], str(place), *parts[6:]])] = tensor
        elif ".experts." in name or "mlp.gate." in name or "router" in name:
            wanted[name] = tensor[kept]
        else:
            wanted[name] = tensor
    assert child.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert child[name].dtype == tensor.dtype
        assert torch.equal(child[name].view(torch.uint8), tensor.view(torch.uint8)), name
    config = json.loads((out / "config.json").read_text())
    assert (
        config["quantization_config"]
        == json.loads((folder / "config.json").read_text())["quantization_config"]
    )
    assert carved.costs["child"]["weight_bytes"] == sum(x.numel() * x.element_size() for x in wanted.values())

    twins = {
        name: plain_twin(tmp_path / f"plain {name}", place)
        for name, place in (("parent", folder), ("child", out))
    }
    ids = torch.arange(1, 25)[None]
    sent, masked = logits_of_stock(twins["child"], ids), logits_of_stock(twins["parent"], ids, kept_in(out))
    assert float((sent - masked).abs().max()) <= 1e-5 * float(masked.abs().max())
    if "int4" not in way:  # it is dequantised on a CPU
        stock = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval().float()
        theirs = stock(input_ids=ids, use_cache=False).logits.float()
        assert float((theirs - sent).abs().max()) <= 1e-4 * float(sent.abs().max())


METHODS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("qwen3_moe fp8", {"criterion": "aimer"}),
    ("deepseek_v3 int4", {"criterion": "aimer"}),
    ("gpt_oss mxfp4", {"criterion": "reap", **TOKENS}),
    ("deepseek_v3 fp8", {"criterion": "reap", **TOKENS}),
)


@pytest.mark.parametrize(("way", "method"), METHODS)
def test_what_goes_is_what_goes_of_the_plain_twin(way: str, method: dict[str, Any], tmp_path: Path) -> None:
    folder = packed_mixture(tmp_path / "parent", way)
    plain = plain_twin(tmp_path / "plain", folder)
    ours, theirs = (carve(place, keep_experts="0.5", **method) for place in (folder, plain))
    assert [row.kept for row in ours.experts.layers] == [row.kept for row in theirs.experts.layers]


def test_a_wrapper_says_in_its_text_part_how_it_is_stored(tmp_path: Path) -> None:
    """As Kimi K2.5 does: the part is changed, what sees stays."""
    folder, out = packed_mixture(tmp_path / "parent", "deepseek_v3 int4"), tmp_path / "child"
    inner = {f"language_model.{name}": part for name, part in load_file(folder / FILE).items()}
    save_file(inner | {"vision_tower.x.weight": torch.ones(3, 5)}, folder / FILE, {"format": "pt"})
    before = "language_model.model.layers.2.mlp.experts"
    listed = [f"{before}.{expert}.up_proj" for expert in range(8)]
    text = json.loads((folder / "config.json").read_text())
    text["quantization_config"] = INT4 | {"ignore": [*listed, "re:.*self_attn.*"]}
    whole = {"model_type": "kimi_k25", "architectures": ["KimiK25ForConditionalGeneration"]}
    whole |= {"tie_word_embeddings": False, "text_config": text}
    (folder / "config.json").write_text(json.dumps(whole))
    assert carve(folder, out, **BY_CHANCE).verified is not None
    child = json.loads((out / "config.json").read_text())
    assert child["text_config"]["n_routed_experts"] == 4
    assert child["text_config"]["quantization_config"]["ignore"] == [*listed[:4], "re:.*self_attn.*"]
    tensors = load_file(out / FILE)
    assert torch.equal(tensors["vision_tower.x.weight"], torch.ones(3, 5))
    for place, expert in enumerate(kept_in(out)[2]):
        for part in ("packed", "scale", "shape"):
            ours = tensors[f"{before}.{place}.up_proj.weight_{part}"]
            assert torch.equal(ours, inner[f"{before}.{expert}.up_proj.weight_{part}"])


def test_modules_that_are_listed_get_their_new_numbers() -> None:
    kept, before = {2: np.array([1, 3]), 3: np.array([0, 3])}, "model.layers."
    listed = ["lm_head", f"{before}2.mlp.experts.3.up_proj", f"{before}2.mlp.experts.0", "re:.*attn.*"]
    listed += [f"{before}3.mlp.experts.3.down_proj", f"{before}0.mlp.experts.7", f"{before}3.mlp.gate"]
    wanted = ["lm_head", f"{before}2.mlp.experts.1.up_proj", "re:.*attn.*"]
    wanted += [f"{before}3.mlp.experts.1.down_proj", *listed[-2:]]
    config = {"layers": listed, "quantization_config": FP8 | {"modules_to_not_convert": listed}}
    assert renumbered(config, kept) == {
        "layers": listed, "quantization_config": FP8 | {"modules_to_not_convert": wanted},
    }  # fmt: skip
    assert renumbered({"text_config": config}, kept) == {"text_config": renumbered(config, kept)}
    groups = {"group_0": {"targets": listed}}
    inner = renumbered({"quantization_config": INT4 | {"config_groups": groups}}, kept)["quantization_config"]
    assert inner["config_groups"] == {"group_0": {"targets": wanted}}
    with pytest.raises(ValueError, match="names experts by the pattern"):
        renumbered({"quantization_config": {"ignore": [r"re:.*experts\.[0-3]\..*"]}}, kept)


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], list[str], str]] = {
    "scales without weights": (
        {}, {"model.layers.0.mlp.experts.0.up_proj.weight": None}, ["--keep-experts", "4"],
        "up_proj.weight' is missing",
    ),
    "a router in blocks": (
        {},
        {
            f"model.layers.{layer}.mlp.gate.{part}": tensor
            for layer in (0, 2, 3)
            for part, tensor in (
                ("weight", torch.ones(8, 48).to(torch.float8_e4m3fn)),
                ("weight_scale_inv", torch.ones(2, 12)),
            )
        },
        ["--keep-experts", "4"],
        "gate.weight' is stored in FP8, whose blocks hold rows of several experts",
    ),
    "an embedding in blocks": (
        {},
        {
            "model.embed_tokens.weight": torch.ones(64, 48).to(torch.float8_e4m3fn),
            "model.embed_tokens.weight_scale_inv": torch.ones(16, 12),
        },
        ["--keep-experts", "4"],
        "embed_tokens.weight' is stored quantised",
    ),
    "another method": (
        {"quantization_config": {"quant_method": "gptq"}}, {}, ["--keep-experts", "4"], "quantized by 'gptq'",
    ),
    "another cut": ({}, {}, ["--keep-heads", ".5"], "experts alone can be taken out"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_it_is_refused(fault: str, zerolm: Zerolm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields, tensors, flags, words = WRONG[fault]
    folder = packed_mixture(tmp_path / "parent", "qwen3_moe fp8")
    configured(folder, **fields)
    replaced(folder, tensors)
    monkeypatch.chdir(tmp_path)
    more = ("--criterion", "random") if "--keep-experts" in flags else ()
    refused(zerolm, "carve", "parent", *flags, *more, "--out", "child", words=words)
