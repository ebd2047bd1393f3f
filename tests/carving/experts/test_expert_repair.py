"""Down projections of the experts that stay, solved again: what changes, and what is gained."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve, rebuild
from packed_mixtures import packed_mixture
from safetensors.torch import load_file
from saved_mixtures import logits_of_stock, mixture
from stopped import Stopped, stopping_at
from tiny import word_tokenizer
from torch.nn import functional
from transformers import AutoModelForCausalLM

import zerolm
from zerolm.carving.experts.expert_repair import repaired_experts
from zerolm.carving.experts.fewer_experts import FewerExperts
from zerolm.carving.experts.masked_parent import masked
from zerolm.carving.request import MethodRequest, methods_of
from zerolm.checkpoints import Checkpoint
from zerolm.io.cache import ArrayCache
from zerolm.networks import compute
from zerolm.networks.opener import mapped_model
from zerolm.planning.size_request import ExpertsRequest, SizeRequest
from zerolm.text.tokens import Tokens

FILE = "model.safetensors"
NARROW: dict[str, Any] = {"keep_experts": "6", "keep_expert_ffn": "8"}
FLAGS: dict[str, Any] = {"keep_experts": "0.5", "text": "random", "sequences": 60, "length": 24}
KINDS = {
    "gpt_oss": (("gpt_oss", {}), 0.9), "deepseek_v3": (("deepseek_v3", {}), 0.9),
    "gemma4": (("gemma4_text", {}), 0.9), "granitemoe": (("granitemoe", {}), 0.9),
    "narrower gpt_oss": (("gpt_oss", NARROW), 0.95), "narrower qwen3_moe": (("qwen3_moe", NARROW), 0.95),
}  # fmt: skip


@pytest.mark.parametrize(("wish", "share"), KINDS.values(), ids=KINDS)
def test_a_repaired_child_is_nearer_to_its_parent_on_unseen_tokens(
    wish: tuple[str, dict[str, Any]], share: float, tmp_path: Path
) -> None:
    """Only down projections of experts differ, and the recipe gives them again."""
    kind, flags = wish
    folder = mixture(tmp_path / "parent", kind)
    for repair in ("none", "least-squares"):
        carved = carve(folder, tmp_path / repair, repair=repair, **FLAGS | flags)
        assert carved.verified.by == "outputs"
    assert all(0 <= row.left <= 1 for row in carved.experts.layers)
    ids = torch.randint(64, (20, 24), generator=torch.Generator().manual_seed(9))
    parent, *children = (
        torch.log_softmax(logits_of_stock(place, ids).double(), -1)
        for place in (folder, tmp_path / "none", tmp_path / "least-squares")
    )
    plain, repaired = (
        float(functional.kl_div(child, parent, log_target=True, reduction="sum")) for child in children
    )
    assert repaired < share * plain
    before, after = (load_file(tmp_path / name / FILE) for name in ("none", "least-squares"))
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(re.search(r"experts\..*down_proj|output_linear", name) for name in changed)
    assert not any("shared" in name for name in changed)
    again = rebuild(tmp_path / "least-squares" / "recipe.json", folder, tmp_path / "again", text="random")
    assert (again.notes, again.repair) == ([], "least-squares")
    assert (tmp_path / "again" / FILE).read_bytes() == (tmp_path / "least-squares" / FILE).read_bytes()


def test_repaired_matrices_are_stored_in_the_parents_type(tmp_path: Path) -> None:
    folder = mixture(tmp_path / "parent", "qwen3_moe", "bfloat16")
    carve(folder, tmp_path / "child", repair="least-squares", **FLAGS)
    assert {tensor.dtype for tensor in load_file(tmp_path / "child" / FILE).values()} == {torch.bfloat16}


@torch.no_grad()
def test_what_is_left_is_that_of_the_stock_models_on_held_out_sequences(tmp_path: Path) -> None:
    """Behind the first layer with experts: the child's stream against the parent's, repaired or not."""
    folder, ids = mixture(tmp_path / "parent", "qwen3_moe"), torch.randint(64, (60, 24))
    checkpoint = Checkpoint.open(folder)
    fewer = FewerExperts(checkpoint, {layer: np.array([0, 2, 5, 7]) for layer in (0, 2, 3)})
    matrices, left = repaired_experts(fewer, mapped_model(checkpoint), Tokens(ids))
    model: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    layer, held, streams = model.model.layers[0], ids[4::5], list[torch.Tensor]()
    layer.register_forward_hook(lambda module, inputs, out: streams.append(out.double()))
    model(input_ids=held, use_cache=False)
    with masked({0: layer}, fewer):
        model(input_ids=held, use_cache=False)
        for expert, matrix in matrices[0].items():
            layer.mlp.experts.down_proj[expert] = torch.from_numpy(matrix)
        model(input_ids=held, use_cache=False)
    length = streams[0].square().mean(-1, keepdim=True).sqrt()
    plain, repaired = (((streams[0] - stream) / length).square().sum() for stream in streams[1:])
    assert left[0] == pytest.approx(float(repaired / plain), rel=1e-3)
    assert left[0] < 0.9


def test_without_held_out_sequences_nothing_is_changed(tmp_path: Path) -> None:
    folder = mixture(tmp_path / "parent", "qwen3_moe")
    for repair in ("none", "least-squares"):
        carve(folder, tmp_path / repair, repair=repair, **FLAGS | {"sequences": 4})
    assert (tmp_path / "none" / FILE).read_bytes() == (tmp_path / "least-squares" / FILE).read_bytes()


def test_a_recipe_of_repaired_experts_needs_its_text(tmp_path: Path) -> None:
    folder, text = mixture(tmp_path / "parent", "qwen3_moe"), tmp_path / "text.txt"
    word_tokenizer(folder)
    text.write_text(" ".join(f"w{word}" for word in np.random.default_rng(0).integers(20, size=600)))
    report = zerolm.carve(
        folder, tmp_path / "child", text=str(text), keep_experts="4", sequences=40, length=12
    )
    assert f"--recipe recipe.json --out child --text {text}" in report.page()
    recipe = tmp_path / "child" / "recipe.json"
    assert rebuild(recipe, folder, tmp_path / "again", text=str(text)).notes == []
    assert (tmp_path / "again" / FILE).read_bytes() == (tmp_path / "child" / FILE).read_bytes()
    with pytest.raises(ValueError, match="the recipe was made with a text"):
        rebuild(recipe, folder, tmp_path / "other")


def test_a_run_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    folder, cache = mixture(tmp_path / "parent", "mixtral"), ArrayCache(tmp_path / "cache")
    checkpoint = Checkpoint.open(folder)
    fewer = FewerExperts(checkpoint, {layer: np.arange(4) for layer in range(4)})
    model, tokens = mapped_model(checkpoint), Tokens(torch.randint(64, (40, 24)))
    whole, shares = repaired_experts(fewer, model, tokens)

    with pytest.raises(Stopped):
        repaired_experts(fewer, model, tokens, cache=cache, progress=stopping_at(2))
    again, left = repaired_experts(fewer, model, tokens, cache=cache)
    assert left == pytest.approx(shares)
    assert {one: sorted(e) for one, e in again.items()} == {one: sorted(e) for one, e in whole.items()}
    for layer, matrices in whole.items():
        for expert, matrix in matrices.items():
            np.testing.assert_allclose(again[layer][expert], matrix, rtol=1e-4, atol=1e-6)


def test_experts_that_are_stored_quantised_are_not_repaired(tmp_path: Path) -> None:
    folder = packed_mixture(tmp_path / "parent", "qwen3_moe fp8")
    carved = carve(folder, tmp_path / "child", repair="least-squares", **FLAGS)
    assert carved.repair == "none"
    assert "stored quantised" in " ".join(carved.notes)
    carve(folder, tmp_path / "plain", repair="none", **FLAGS)
    assert (tmp_path / "child" / FILE).read_bytes() == (tmp_path / "plain" / FILE).read_bytes()


def test_a_text_that_is_not_random_repairs_unless_it_is_asked_not_to() -> None:
    size = SizeRequest(experts=ExpertsRequest("4"))
    for text, repair in ((None, "none"), ("random", "none"), ("a.txt", "least-squares")):
        assert methods_of(size, MethodRequest(text=text)).repair == repair
    assert methods_of(size, MethodRequest(text="a.txt", repair="none")).repair == "none"


def test_experts_are_repaired_in_float32_where_products_are_bfloat16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of wide mixtures on processors that are fast in it."""
    parent = mixture(tmp_path / "parent", "mixtral")
    flags: dict[str, Any] = {"keep_experts": "4", "keep_expert_ffn": "16", "text": "random", "sequences": 8}
    flags |= {"repair": "least-squares", "criterion": "hope_moments", "length": 12}
    carve(parent, tmp_path / "plain", **flags)
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compute, "WIDE", 1)
    monkeypatch.setattr(compute, "is_fast_in_bfloat16", lambda device: True)
    carve(parent, tmp_path / "wide", **flags)
    files = (tmp_path / name / "model.safetensors" for name in ("plain", "wide"))
    assert len({file.read_bytes() for file in files}) == 1
