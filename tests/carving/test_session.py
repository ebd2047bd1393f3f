"""What a carving runs through the network: losses of whole cuts, random tokens, parents that do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from carvings import carve
from divergences import fidelity
from tiny import saved, word_tokenizer

from zerolm.carving.export import verify
from zerolm.carving.kept_units import Cut, LayerCut, dimensions
from zerolm.carving.planning.sensitivity import LOSS_BATCH, Loss
from zerolm.carving.pruning import apply_in_memory, carved_layer
from zerolm.carving.request import Methods
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint
from zerolm.networks.blocks import Blocks
from zerolm.networks.opener import open_model
from zerolm.text.calibration import tokens_of


def running(folder: Path) -> Session:
    method = Methods("output_energy", "measured", "random", 6, 12, "least-squares")
    return Session(Checkpoint.open(folder), method, lambda text: None)


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "gemma2"])
def test_the_loss_of_a_cut_is_that_of_the_carved_network(name: str, tmp_path: Path) -> None:
    run = running(saved(tmp_path / "parent", name))
    cut = Cut.whole(dimensions(run.checkpoint))
    assert run.loss(cut) == pytest.approx(0.0, abs=1e-6)
    alone = LayerCut(1, cut.layers[1].groups, np.arange(0, cut.parent.ffn, 2))
    half = Cut(cut.parent, (cut.layers[0], alone, cut.layers[2]))
    loss = Loss(Blocks(run.model, run.tokens.batches(LOSS_BATCH)), 3)
    assert run.loss(half) == pytest.approx(loss.of(1, carved_layer(run.model, half, alone).module))
    two = Cut(cut.parent, (cut.layers[0], cut.layers[2]))
    assert run.loss(two) == pytest.approx(loss.of(1, None))
    if name == "bert":
        parent = open_model(run.checkpoint)
        cosine = fidelity(apply_in_memory(parent, half), parent, run.tokens)
        assert run.loss(half) == pytest.approx(1.0 - cosine, abs=1e-6)


def test_random_tokens_are_none_that_no_text_holds(tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", "llama")
    word_tokenizer(parent, special="w9")
    ids = tokens_of(Checkpoint.open(parent), "random", sequences=40, length=64).ids
    assert 9 not in ids
    assert len(ids.unique()) == 63


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_a_parent_that_does_not_fit_is_compared_block_by_block(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = saved(tmp_path / "parent", name, dtype="bfloat16")
    monkeypatch.setattr(verify, "fits", lambda *_: False)
    found = carve(
        parent, tmp_path / "child", keep_ffn=0.5, text="random", sequences=12, length=16, plan="measured"
    )
    assert found.verified is not None
    assert found.verified["by"] == "blocks"
    assert set(found.losses) == {"predicted", "measured", "repaired"}
