"""A recipe builds the same bytes again, and is refused for another parent or another text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from carvings import carve, rebuild
from forked import contents
from tiny import saved, word_tokenizer

TOKENS: dict[str, Any] = {"text": "random", "sequences": 12, "length": 16}


SMALL = {"max_body_params": "0.6x"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "weights": ("llama", {"keep_ffn": 0.5, "keep_heads": 0.5}),
    "repaired": ("llama", {"keep_ffn": 0.5, **TOKENS}),
    "narrower": ("llama", {"keep_hidden": 0.5, "keep_ffn": 0.5, "seed": 3, **TOKENS}),
    "narrower by weights": ("qwen2_tied", {"keep_hidden": 0.5}),
    "narrower without repair": ("mistral", {"keep_hidden": 0.5, "repair": "none", **TOKENS}),
    "post-norm": ("bert", {"keep_ffn": 0.5, **TOKENS}),
    "fused": ("gpt2", {"keep_ffn": 0.5, **TOKENS}),
    "measured": ("llama", {"budgets": SMALL, "shape": "per-layer", "form": "padded", **TOKENS}),
    "criterion with tokens": ("qwen3", {"keep_heads": 0.5, "criterion": "amp", "repair": "none", **TOKENS}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_same_bytes_again(case: str, tmp_path: Path) -> None:
    name, wishes = CASES[case]
    parent = saved(tmp_path / "parent", name)
    child = carve(parent, tmp_path / "child", **wishes)
    again = rebuild(tmp_path / "child" / "recipe.json", parent, tmp_path / "again")
    ours, theirs = contents(tmp_path / "child"), contents(tmp_path / "again")
    assert ours["model.safetensors"] == theirs["model.safetensors"]
    assert ours["config.json"] == theirs["config.json"]
    for name in ("widths", "costs", "criterion", "repair", "plan", "shape", "format", "space"):
        assert getattr(again, name) == getattr(child, name)
    assert not again.note
    assert again.verified is not None
    assert again.verified.relative <= 1e-4


def test_repair_with_another_ridge_gives_other_bytes(tmp_path: Path) -> None:
    """The ridges of the recipe are really used."""
    parent = saved(tmp_path / "parent", "llama")
    carve(parent, tmp_path / "child", keep_ffn=0.5, **TOKENS)
    recipe = json.loads((tmp_path / "child" / "recipe.json").read_text())
    recipe["ridges"]["down 1"][0] *= 3
    (tmp_path / "other.json").write_text(json.dumps(recipe))
    rebuild(tmp_path / "other.json", parent, tmp_path / "again")
    ours, theirs = (contents(tmp_path / each)["model.safetensors"] for each in ("child", "again"))
    assert ours != theirs


def test_the_text_of_the_recipe_is_asked_for(tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", "llama")
    word_tokenizer(parent)
    for name, step in (("text", 7), ("other", 5)):
        (tmp_path / name).write_text(" ".join(f"w{i * step % 64}" for i in range(400)))
    recipe = tmp_path / "child" / "recipe.json"
    carve(parent, recipe.parent, keep_ffn=0.5, text=tmp_path / "text", sequences=12, length=16)
    with pytest.raises(ValueError, match="give it by --text FILE"):
        rebuild(recipe, parent, tmp_path / "again")
    with pytest.raises(ValueError, match="but the recipe was made with"):
        rebuild(recipe, parent, tmp_path / "again", text=tmp_path / "other")
    assert not (tmp_path / "again").exists()
    rebuild(recipe, parent, tmp_path / "again", text=tmp_path / "text")
    ours, theirs = (contents(folder)["model.safetensors"] for folder in (recipe.parent, tmp_path / "again"))
    assert ours == theirs


ENDLESS = {"text": None, "seed": 0, "sequences": 2**20, "length": 2**20}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no recipe": ({"format": "cake"}, "it is no recipe"),
    "a later version": ({"version": 99}, "its version is 99; 1 can be read"),
    "another parent": ({"parent_weights": "0"}, "a parent with other weights"),
    "another family": ({"family": "mistral"}, "made for a mistral, not a llama"),
    "no such criterion": ({"criterion": "x\n# y"}, "criterion .* is not known"),
    "endless calibration": ({"calibration": ENDLESS}, "its calibration has"),
    "no layers": ({"layers": []}, "lists the kept layers"),
    "a layer beyond": ({"layers": [{"layer": 9, "groups": [0], "ffn": [0]}]}, "beyond 3 layers"),
    "odd ridges": ({"ridges": {"q 0": [0.1, 0.1]}}, "its ridges of 'q 0'"),
    "a ridge of nothing": ({"ridges": {"o 0": [0.1, 0.0]}}, r"ridges.o 0.1: input should be greater than 0"),
    "one ridge": ({"ridges": {"o 0": 0.1}}, "ridges.o 0 must be a list, not 0.1"),
    "odd calibration": ({"calibration": {"text": 3}}, "calibration.text must be text, not 3"),
    "a text as number": ({"repair": 7}, "repair must be text, not 7"),
    "no such format": ({"written_as": "onnx"}, "format 'onnx' is not known"),
    "hashes that are none": ({"sha256": [1]}, "sha256 must be a JSON object"),
    "no such repair": ({"repair": "glue"}, "repair .glue. is not known"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_recipe_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    change, words = WRONG[case]
    parent = saved(tmp_path / "parent", "llama")
    carve(parent, tmp_path / "child", keep_ffn=0.5)
    recipe = json.loads((tmp_path / "child" / "recipe.json").read_text())
    (tmp_path / "wrong.json").write_text(json.dumps(recipe | change))
    with pytest.raises(ValueError, match=words) as told:
        rebuild(tmp_path / "wrong.json", parent, tmp_path / "again")
    assert "\n" not in str(told.value)
    assert not (tmp_path / "again").exists()


def test_a_number_beyond_all_integers_of_64_bits_is_refused_in_one_line(tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", "llama")
    carve(parent, tmp_path / "child", keep_ffn=0.5)
    recipe = json.loads((tmp_path / "child" / "recipe.json").read_text())
    recipe["layers"][0]["ffn"][-1] = 10**30
    (tmp_path / "wrong.json").write_text(json.dumps(recipe))
    with pytest.raises(ValueError, match="ffn of layer 0 must ascend within 0 to 39"):
        rebuild(tmp_path / "wrong.json", parent, tmp_path / "again")
