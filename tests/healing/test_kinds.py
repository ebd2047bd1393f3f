"""Healing of children with fewer tokens, of routers alone, and of weights that are stored otherwise."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_families
from made_tokenizers import CORPUS, byte_level
from made_vocabularies import decoder
from saved_mixtures import mixture
from tiny import saved, word_tokenizer

import zerolm
from zerolm.carving.vocabulary import byte_losses
from zerolm.checkpoints import Checkpoint
from zerolm.families.known import families

FAST: dict[str, Any] = {"tokens": 12 * 4 * 12, "batch": 4, "length": 12, "rate": 2e-4}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setattr(byte_losses, "LOSS_TOKENS", 512)


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    return decoder(tmp_path / "parent", byte_level(), tie_word_embeddings=True)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    file = tmp_path / "text.txt"
    file.write_text(CORPUS[0] * 6, "utf-8")
    return file


CUT: dict[str, Any] = {"keep_ffn": 0.5, "keep_vocab": "used", "sequences": 4, "length": 16}


def test_a_child_learns_from_its_parent(parent: Path, page: Path, tmp_path: Path) -> None:
    child, out = tmp_path / "child", tmp_path / "healed"
    carved = zerolm.carve(parent, child, text=page, **CUT)
    healed = zerolm.heal(child, out, parent=parent, text=page, **FAST)
    assert 0 < healed.losses["after"]["kl"] < healed.losses["before"]["kl"]
    assert Checkpoint.open(out).layout.vocab == carved.vocabulary.child < Checkpoint.open(parent).layout.vocab
    recipes = [json.loads((folder / "recipe.json").read_text()) for folder in (child, out)]
    assert recipes[0]["tokens"] == recipes[1]["tokens"]
    for name in ("tokenizer.json", "generation_config.json"):
        assert (out / name).read_bytes() == (child / name).read_bytes()
    judged = [zerolm.eval(one, parent=parent, text=page, length=16) for one in (child, out)]
    assert judged[1].kl < judged[0].kl


def test_tokens_leave_in_the_first_of_several_stages(parent: Path, page: Path, tmp_path: Path) -> None:
    once = zerolm.carve(parent, text=page, **CUT)
    staged = zerolm.carve(parent, tmp_path / "child", text=page, steps=2, heal=5000, **CUT)
    assert staged.vocabulary.child == once.vocabulary.child
    assert staged.costs["child"] == once.costs["child"]
    assert len(json.loads((tmp_path / "child" / "recipe.json").read_text())["healing"]) == 2
    assert Checkpoint.open(tmp_path / "child").layout.vocab == once.vocabulary.child
    assert zerolm.eval(tmp_path / "child", parent=parent, text=page, length=16).bits > 0


STORED: dict[str, str] = {
    "mixtral": "experts_gate",  # each expert by itself, the class has all in one
    "gpt_oss": "experts_gate+experts_up",  # alternating columns, stored as the class has them
    "qwen3_next": "experts_up",  # with gated heads beside it
    "llama4_text": "experts_down",  # a class that is its own base
    "nomic_bert": "q+k+v",  # fused, and apart in the class
}
"""Families, and a role of theirs that is stored otherwise than most."""
SHORT: dict[str, Any] = {"tokens": 2 * 4 * 12, "batch": 4, "length": 12, "rate": 1e-3}


@pytest.mark.parametrize("name", STORED)
def test_what_is_stored_otherwise_is_trained_and_written(name: str, text: Path, tmp_path: Path) -> None:
    parent = tiny_families.saved(tmp_path / "parent", name, tie_word_embeddings=False)
    word_tokenizer(parent)
    zerolm.carve(parent, tmp_path / "child", keep_heads=0.5, criterion="capacity")
    healed = zerolm.heal(tmp_path / "child", tmp_path / "healed", parent=parent, text=text, **SHORT)
    loss = "cosine" if families()[name].task == "masked" else "kl"
    assert healed.losses["after"][loss] != healed.losses["before"][loss]
    assert healed.verified.difference < 1e-4
    before, after = (Checkpoint.open(tmp_path / folder) for folder in ("child", "healed"))
    of_role = [stored for stored, slot in before.layout.slots.items() if slot.role == STORED[name]]
    changed = [np.abs(before.read(stored) - after.read(stored)).max() > 1e-5 for stored in of_role]
    assert len(of_role) > 0
    assert sum(changed) > len(of_role) / 2


TWENTY_STEPS: dict[str, Any] = {"tokens": 20 * 4 * 12, "batch": 4, "length": 12, "rate": 1e-2}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    steps = np.random.default_rng(0).integers(0, 4, 1500)
    file = tmp_path / "text.txt"
    file.write_text(" ".join(f"w{word}" for word in np.cumsum(steps) % 64))
    return file


@pytest.mark.parametrize("kind", ["gpt_oss", "deepseek_v3"])
def test_nothing_but_routers_changes(kind: str, text: Path, tmp_path: Path) -> None:
    parent = mixture(tmp_path / "parent", kind)
    word_tokenizer(parent)
    zerolm.carve(parent, tmp_path / "child", keep_experts="4", criterion="random")
    healed = zerolm.heal(
        tmp_path / "child", tmp_path / "healed", parent=parent, text=text, only="router", **TWENTY_STEPS
    )
    assert healed.losses["after"]["kl"] < healed.losses["before"]["kl"]
    assert healed.training.losses == ["kl"]
    before, after = (Checkpoint.open(tmp_path / name) for name in ("child", "healed"))
    changed = {
        slot.role
        for name, slot in before.layout.slots.items()
        if not np.array_equal(before.read(name), after.read(name))
    }
    assert changed == {"router"}
    assert "each router alone" in healed.how
    stage = json.loads((tmp_path / "healed" / "recipe.json").read_text())["healing"][0]
    assert stage["only"] == "router"
    assert "the rows of routers" in (tmp_path / "healed" / "README.md").read_text()


def test_what_cannot_be_is_refused(text: Path, tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", "llama")
    word_tokenizer(parent)
    zerolm.carve(parent, tmp_path / "child", keep_ffn=0.5, criterion="capacity")
    call: dict[str, Any] = {"parent": parent, "text": text, "only": "router", **TWENTY_STEPS}
    with pytest.raises(ValueError, match="has no router to train: leave --only out"):
        zerolm.heal(tmp_path / "child", tmp_path / "healed", **call)
    with pytest.raises(ValueError, match="--only router trains no others"):
        zerolm.heal(tmp_path / "child", tmp_path / "healed", lora=2, **call)
    assert not (tmp_path / "healed").exists()
