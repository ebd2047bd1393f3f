"""Rows of routers alone are trained, towards what the parent predicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from saved_mixtures import mixture
from tiny import saved, word_tokenizer

import zerolm
from zerolm.checkpoints import Checkpoint

SHORT: dict[str, Any] = {"tokens": 20 * 4 * 12, "batch": 4, "length": 12, "rate": 1e-2}


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
        tmp_path / "child", tmp_path / "healed", parent=parent, text=text, only="router", **SHORT
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
    call: dict[str, Any] = {"parent": parent, "text": text, "only": "router", **SHORT}
    with pytest.raises(ValueError, match="has no router to train: leave --only out"):
        zerolm.heal(tmp_path / "child", tmp_path / "healed", **call)
    with pytest.raises(ValueError, match="--only router trains no others"):
        zerolm.heal(tmp_path / "child", tmp_path / "healed", lora=2, **call)
    assert not (tmp_path / "healed").exists()
