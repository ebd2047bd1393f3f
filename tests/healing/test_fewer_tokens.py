"""Healing of children with fewer tokens: the parent teaches with those that the child has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_tokenizers import CORPUS, byte_level
from made_vocabularies import decoder

import zerolm
from zerolm.carving.vocabulary import byte_losses
from zerolm.checkpoints import Checkpoint

FAST: dict[str, Any] = {"tokens": 12 * 4 * 12, "batch": 4, "length": 12, "rate": 2e-4}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setattr(byte_losses, "LOSS_TOKENS", 512)


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    return decoder(tmp_path / "parent", byte_level(), tie_word_embeddings=True)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(CORPUS[0] * 6, "utf-8")
    return file


CUT: dict[str, Any] = {"keep_ffn": 0.5, "keep_vocab": "used", "sequences": 4, "length": 16}


def test_a_child_learns_from_its_parent(parent: Path, text: Path, tmp_path: Path) -> None:
    child, out = tmp_path / "child", tmp_path / "healed"
    carved = zerolm.carve(parent, child, text=text, **CUT)
    healed = zerolm.heal(child, out, parent=parent, text=text, **FAST)
    assert 0 < healed.losses["after"]["kl"] < healed.losses["before"]["kl"]
    assert Checkpoint.open(out).layout.vocab == carved.vocabulary.child < Checkpoint.open(parent).layout.vocab
    recipes = [json.loads((folder / "recipe.json").read_text()) for folder in (child, out)]
    assert recipes[0]["tokens"] == recipes[1]["tokens"]
    for name in ("tokenizer.json", "generation_config.json"):
        assert (out / name).read_bytes() == (child / name).read_bytes()
    judged = [zerolm.eval(one, parent=parent, text=text, length=16) for one in (child, out)]
    assert judged[1].kl < judged[0].kl


def test_tokens_leave_in_the_first_of_several_stages(parent: Path, text: Path, tmp_path: Path) -> None:
    once = zerolm.carve(parent, text=text, **CUT)
    staged = zerolm.carve(parent, tmp_path / "child", text=text, steps=2, heal=5000, **CUT)
    assert staged.vocabulary.child == once.vocabulary.child
    assert staged.costs["child"] == once.costs["child"]
    recipe = json.loads((tmp_path / "child" / "recipe.json").read_text())
    assert len(recipe["healing"]) == 2
    assert Checkpoint.open(tmp_path / "child").layout.vocab == once.vocabulary.child
    assert zerolm.eval(tmp_path / "child", parent=parent, text=text, length=16).bits > 0
