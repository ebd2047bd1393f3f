"""A sentence-transformers folder in, one out: both layouts, and what is encoded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve, rebuild
from sentence_folders import LINES, sentence_folder

from zerolm.checkpoints import Checkpoint
from zerolm.children import encoded
from zerolm.networks.opener import open_model
from zerolm.units.pruning import apply_in_memory

LAYOUTS = ("", "0_Transformer")
FEW: dict[str, Any] = {"sequences": 12, "length": 12}


def text(folder: Path) -> Path:
    (folder / "text.txt").write_text("\n".join(LINES), encoding="utf-8")
    return folder / "text.txt"


def encode(model: Any, **more: Any) -> Any:
    return model.encode(LINES, show_progress_bar=False, **more)


@pytest.mark.parametrize("inside", LAYOUTS)
def test_a_child_has_the_layout_of_its_parent(inside: str, tmp_path: Path) -> None:
    parent = sentence_folder(tmp_path / "parent", inside=inside, kinds=("Dense", "Normalize"))
    write = parent / "2_Dense" / "pytorch_model.bin"
    write.write_bytes(b"a pickle")
    (parent / "custom.py").write_text("raise SystemExit")
    carve(parent, tmp_path / "child", keep_ffn=0.5)
    child = tmp_path / "child"
    kept = {file.relative_to(parent) for file in parent.rglob("*") if file.is_file()}
    left_out = {Path("2_Dense/pytorch_model.bin"), Path("custom.py"), Path(inside, "generation_config.json")}
    files = {file.relative_to(child) for file in child.rglob("*") if file.is_file()}
    assert files == kept - left_out | {Path("recipe.json"), Path("README.md")}
    changed = {Path(inside, name) for name in ("config.json", "model.safetensors")}
    for name in files & kept - changed:
        assert (child / name).read_bytes() == (parent / name).read_bytes(), name
    recipe = json.loads((child / "recipe.json").read_text())
    assert set(recipe["files"]) == {file.as_posix() for file in files}
    assert set(recipe["sha256"]) == {Path(inside, "model.safetensors").as_posix()}
    card = (child / "README.md").read_text()
    assert "library_name: sentence-transformers" in card
    assert 'SentenceTransformer(".")' in card


def test_a_child_is_built_again_from_its_recipe(tmp_path: Path) -> None:
    inside = "0_Transformer"
    parent = sentence_folder(tmp_path / "parent", inside=inside)
    first = carve(parent, tmp_path / "child", keep_ffn=0.5)
    again = rebuild(tmp_path / "child" / "recipe.json", parent, tmp_path / "again")
    assert "differ" not in again.note
    weights = Path(inside, "model.safetensors")
    assert (tmp_path / "again" / weights).read_bytes() == (tmp_path / "child" / weights).read_bytes()
    second = carve(tmp_path / "child", tmp_path / "smaller", keep_ffn=0.5)
    assert second.costs["parent"] == first.costs["child"]
    assert (tmp_path / "smaller" / weights).is_file()


def test_what_a_child_encodes_is_what_the_masked_parent_does(tmp_path: Path) -> None:
    package = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    parent = sentence_folder(tmp_path / "parent", inside="0_Transformer", kinds=("Dense", "Normalize"))
    cut = {"keep_layers": 0.67, "keep_ffn": 0.5, "repair": "none"}
    carved = carve(parent, tmp_path / "child", text=text(tmp_path), **cut, **FEW)
    assert carved.verified is not None
    assert carved.verified.embeddings < 1e-5
    child = package.SentenceTransformer(str(tmp_path / "child"), device="cpu")
    masked = package.SentenceTransformer(str(parent), device="cpu")
    before = encode(masked)
    masked[0].model = apply_in_memory(open_model(Checkpoint.open(parent)), carved.cut)
    assert encode(child).shape == (len(LINES), 24)
    np.testing.assert_allclose(encode(child), encode(masked), atol=1e-5)
    assert np.abs(encode(child) - before).max() > 1e-3  # the cut is felt
    assert child.max_seq_length == 12
    assert (child.prompts, child.default_prompt_name) == (masked.prompts, None)
    assert child.similarity_fn_name == "cosine"
    with_prompt = encode(child, prompt_name="query")
    np.testing.assert_allclose(with_prompt, encode(masked, prompt_name="query"), atol=1e-5)
    assert np.abs(with_prompt - encode(child)).max() > 1e-3


def test_a_child_that_encodes_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    parent = sentence_folder(tmp_path / "parent", mode="max")
    monkeypatch.setattr(encoded, "embeddings", lambda model, inputs, pooling: torch.ones(8, 48))
    with pytest.raises(ValueError, match="written child differs from the carved parent by"):
        carve(parent, tmp_path / "child", keep_ffn=0.5)
    assert not (tmp_path / "child").exists()


def test_without_the_package_the_note_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded, "find_spec", lambda name: None)
    parent = sentence_folder(tmp_path / "parent")
    carved = carve(parent, tmp_path / "child", keep_ffn=0.5)
    assert carved.verified is not None
    assert carved.verified.embeddings is None
    assert encoded.UNTRIED in carved.note
