"""A recipe builds the same bytes again; a carving takes no model or text for another."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from carvings import BY_WEIGHTS, carve, rebuild
from forked import contents
from safetensors.torch import load_file, save_file
from tiny import saved, word_tokenizer

TOKENS: dict[str, Any] = {"text": "random", "sequences": 12, "length": 16}


SMALL = {"max_body_params": "0.6x"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "narrower": ("llama", {"keep_hidden": 0.5, "keep_ffn": 0.5, "seed": 3, **TOKENS}),
    "narrower without repair": ("mistral", {"keep_hidden": 0.5, "repair": "none", **TOKENS}),
    "post-norm": ("bert", {"keep_ffn": 0.5, **TOKENS}),
    "fused": ("gpt2", {"keep_ffn": 0.5, **TOKENS}),
    "planned": ("llama", {"budgets": SMALL, "shape": "per-layer", "form": "padded", **TOKENS}),
    "criterion with tokens": ("qwen3", {"keep_heads": 0.5, "criterion": "amp", "repair": "none", **TOKENS}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_same_bytes_again(case: str, tmp_path: Path) -> None:
    name, wishes = CASES[case]
    parent = saved(tmp_path / "parent", name)
    child = carve(parent, tmp_path / "child", **wishes)
    again = rebuild(tmp_path / "child", parent, tmp_path / "again")
    ours, theirs = contents(tmp_path / "child"), contents(tmp_path / "again")
    assert ours["model.safetensors"] == theirs["model.safetensors"]
    assert ours["config.json"] == theirs["config.json"]
    for name in ("widths", "costs", "criterion", "repair", "plan", "shape", "format", "space"):
        assert getattr(again, name) == getattr(child, name)
    assert not again.notes
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
    """It counts the sequences that were there."""
    parent = saved(tmp_path / "parent", "llama")
    word_tokenizer(parent)
    for name, step in (("text", 7), ("other", 5)):
        (tmp_path / name).write_text(" ".join(f"w{i * step % 64}" for i in range(400)))
    recipe = tmp_path / "child" / "recipe.json"
    carve(parent, recipe.parent, keep_ffn=0.5, text=tmp_path / "text", sequences=1000, length=16)
    count = json.loads(recipe.read_text())["calibration"]["sequences"]
    assert 0 < count <= 400 // 16
    assert f"{count} sequences of at most 16 tokens" in (recipe.parent / "README.md").read_text()
    with pytest.raises(ValueError, match="give it by --text FILE"):
        rebuild(recipe, parent, tmp_path / "again")
    with pytest.raises(ValueError, match="the recipe was made with another text"):
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
    "a text as number": ({"criterion": 7}, "criterion must be text, not 7"),
    "no such format": ({"written_as": "onnx"}, "format 'onnx' is not known"),
    "hashes that are none": ({"sha256": [1]}, "sha256 must be a JSON object"),
    "no such plan": ({"plan": "x\n# y"}, "plan must be 'weights', 'prices' or 'heuristic', not"),
    "no such repair": ({"repair": "glue"}, "repair must be 'none' or 'least-squares', not 'glue'"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("sound")
    carve(saved(folder / "parent", "llama"), folder / "child", keep_ffn=0.5)
    return folder / "parent", json.loads((folder / "child" / "recipe.json").read_text())


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_recipe_is_refused(case: str, sound: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    (parent, recipe), (change, words) = sound, WRONG[case]
    (tmp_path / "wrong.json").write_text(json.dumps(recipe | change))
    with pytest.raises(ValueError, match=words) as told:
        rebuild(tmp_path / "wrong.json", parent, tmp_path / "again")
    assert "\n" not in str(told.value)
    assert not (tmp_path / "again").exists()


def shuffled_copy(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    file = target / "model.safetensors"
    weights = load_file(file)
    for name in weights:
        if "up_proj" in name or "gate_proj" in name:
            weights[name] = weights[name].flip(0).contiguous()
        elif "down_proj" in name:
            weights[name] = weights[name].flip(1).contiguous()
    save_file(weights, file, {"format": "pt"})
    before = (folder / "model.safetensors").stat()
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    return target


def units(child: Path) -> Any:
    return [layer["ffn"] for layer in json.loads((child / "recipe.json").read_text())["layers"]]


@pytest.mark.parametrize(
    ("place", "text"),
    [("beside it", BY_WEIGHTS), ("in its place", ("--text", "random", "--sequences", "6", "--length", "12"))],
)
def test_units_are_those_of_the_model_that_is_carved(
    place: str, text: tuple[str, ...], zerolm: Callable[..., Any], tmp_path: Path
) -> None:
    """The FFN of the second stands the other way round, and so must the kept neurons."""
    parent = saved(tmp_path / "parent", "llama")
    other = shuffled_copy(parent, tmp_path / "other")
    flags = ("--keep-ffn", "0.5", *text, "--out")
    assert zerolm("carve", str(parent), *flags, str(tmp_path / "first")).status == 0
    if place == "in its place":
        shutil.rmtree(parent)
        other = other.rename(parent)
    assert zerolm("carve", str(other), *flags, str(tmp_path / "second")).status == 0
    mirrored = [sorted(39 - unit for unit in layer) for layer in units(tmp_path / "first")]
    assert units(tmp_path / "second") == mirrored != units(tmp_path / "first")


def test_a_rebuilt_child_with_other_bytes_is_told_of(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    parent, file = saved(tmp_path / "parent", "llama"), tmp_path / "recipe.json"
    carve(parent, tmp_path / "child", keep_ffn=0.5)
    recipe = json.loads((tmp_path / "child" / "recipe.json").read_text())
    for sha256, told in ((recipe["sha256"], False), ({"model.safetensors": "0" * 64}, True)):
        file.write_text(json.dumps(recipe | {"sha256": sha256, "versions": {"torch": "0.1"}}))
        flags = ("--recipe", str(file), "--out", str(tmp_path / "again"), "--force")
        ran = zerolm("carve", str(parent), *flags)
        assert ran.status == 0
        words = "differs from the child that the recipe describes (then torch 0.1, now zerolm"
        assert (words in ran.err) == told
