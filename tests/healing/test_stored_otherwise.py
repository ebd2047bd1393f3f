"""Healing of families whose tensors are not the parameters of their class, one by one.

That every family can be healed is measured in benchmarks/families.md; here is each way to store weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import word_tokenizer
from tiny_families import saved

import zerolm
from zerolm.checkpoints import Checkpoint
from zerolm.families.known import families

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
def test_what_is_stored_otherwise_is_trained_and_written(name: str, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    steps = np.random.default_rng(0).integers(0, 4, 600)
    text.write_text(" ".join(f"w{word}" for word in np.cumsum(steps) % 64))
    parent = saved(tmp_path / "parent", name, tie_word_embeddings=False)
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
