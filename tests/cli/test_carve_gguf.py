"""``zerolm carve --format gguf``: a per-layer child that llama.cpp opened before the command says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from refusals import Zerolm
from tiny import saved, word_tokenizer
from tiny_families import saved as saved_tiny

PER_LAYER = ("--max-body-params", "0.6x", "--shape", "per-layer", "--format", "gguf")
TOKENS = ("--text", "random", "--sequences", "8", "--length", "16")


@pytest.mark.usefixtures("opened_here")
@pytest.mark.parametrize("tokens", [("--criterion", "capacity"), TOKENS], ids=["weights", "tokens"])
def test_a_per_layer_child_opens_in_llama_cpp(
    tokens: tuple[str, ...], zerolm: Zerolm, tmp_path: Path
) -> None:
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    parent, out = saved(tmp_path / "parent", "llama"), tmp_path / "child"
    (parent / "LICENSE").write_text("mine")
    ran = zerolm("carve", str(parent), *PER_LAYER, *tokens, "--out", str(out), "--json")
    assert ran.status == 0, ran.err
    found = json.loads(ran.out)
    assert len({(size["kv_heads"], size["ffn"]) for size in found["widths"]}) > 1
    assert found["verified"]["difference"] <= 5e-3
    files = sorted(file.name for file in out.iterdir())
    report = ["report.html", "result.json", "run.yaml"]
    assert files == ["LICENSE", "README.md", "parent-carved.gguf", "recipe.json", *report]
    model = llama_cpp.Llama(str(out / "parent-carved.gguf"), n_ctx=8, verbose=False)
    assert model.metadata["general.architecture"] == "deci"
    model.close()
    told = zerolm("doctor", str(out), "--json")
    assert told.status == 0, told.err


def test_what_gguf_cannot_hold_is_refused_before_the_work(zerolm: Zerolm, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    parent = saved_tiny(tmp_path / "parent", "vaultgemma")
    word_tokenizer(parent)
    before = sorted(tmp_path.iterdir())
    zerolm("carve", str(parent), *PER_LAYER, "--out", str(tmp_path / "child")).refused("gguf", "llama")
    assert sorted(tmp_path.iterdir()) == before
