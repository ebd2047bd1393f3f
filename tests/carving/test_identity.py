"""A carving takes no model for another: neither its ledger, nor what tokens told, nor its recipe."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from carvings import BY_WEIGHTS
from safetensors.torch import load_file, save_file
from tiny import saved


def shuffled_copy(folder: Path, target: Path) -> Path:
    """Return a copy whose FFN rows stand in another order, and whose file is said to be as old."""
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


@pytest.mark.parametrize("text", [BY_WEIGHTS, ("--text", "random", "--sequences", "6", "--length", "12")])
@pytest.mark.parametrize("place", ["beside it", "in its place"])
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


def test_a_recipe_is_refused_for_shuffled_weights(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    """All extremes of all tensors are the same."""
    parent = saved(tmp_path / "parent", "llama")
    other = shuffled_copy(parent, tmp_path / "other")
    assert (
        zerolm(
            "carve", str(parent), "--keep-ffn", "0.5", *BY_WEIGHTS, "--out", str(tmp_path / "child")
        ).status
        == 0
    )
    recipe = ("--recipe", str(tmp_path / "child" / "recipe.json"), "--out", str(tmp_path / "again"))
    ran = zerolm("carve", str(other), *recipe)
    assert (ran.status, ran.out) == (2, "")
    assert "it was made for a parent with other weights: 'parent'" in ran.err
    assert not (tmp_path / "again").exists()
    moved = parent.rename(tmp_path / "moved")
    assert zerolm("carve", str(moved), *recipe).status == 0


def test_a_rebuilt_child_with_other_bytes_is_told_of(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    parent, file = saved(tmp_path / "parent", "llama"), tmp_path / "recipe.json"
    assert (
        zerolm(
            "carve", str(parent), "--keep-ffn", "0.5", *BY_WEIGHTS, "--out", str(tmp_path / "child")
        ).status
        == 0
    )
    recipe = json.loads((tmp_path / "child" / "recipe.json").read_text())
    for sha256, told in ((recipe["sha256"], False), ({"model.safetensors": "0" * 64}, True)):
        file.write_text(json.dumps(recipe | {"sha256": sha256, "versions": {"torch": "0.1"}}))
        flags = ("--recipe", str(file), "--out", str(tmp_path / "again"), "--force")
        ran = zerolm("carve", str(parent), *flags)
        assert ran.status == 0
        words = "differs from the child that the recipe describes (then torch 0.1; now zerolm"
        assert (words in ran.err) == told
