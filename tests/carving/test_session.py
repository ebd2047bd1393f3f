"""What a carving runs through the network: losses of whole cuts, random tokens, parents that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve
from divergences import fidelity
from tiny import saved, word_tokenizer

from zerolm.carving.request import Methods
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint
from zerolm.children import verify
from zerolm.networks.blocks import Blocks
from zerolm.networks.opener import mapped_model, open_model
from zerolm.planning.sensitivity import LOSS_BATCH, Loss
from zerolm.text.calibration import tokens_of
from zerolm.units.kept_units import Cut, LayerCut, dimensions
from zerolm.units.pruning import apply_in_memory, carved_layer, dimensions_of


def running(folder: Path) -> Session:
    method = Methods("output_energy", "measured", "random", sequences=6, length=12, repair="least-squares")
    return Session(Checkpoint.open(folder), method, lambda text: None)


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "gemma2"])
def test_the_loss_of_a_cut_is_that_of_the_carved_network(name: str, tmp_path: Path) -> None:
    run = running(saved(tmp_path / "parent", name))
    cut = Cut.whole(dimensions(run.checkpoint))
    assert run.loss(cut) == pytest.approx(0.0, abs=1e-6)
    alone = LayerCut.of(1, cut.layers[1]["groups"], np.arange(0, cut.parent.ffn, 2))
    half = Cut(cut.parent, (cut.layers[0], alone, cut.layers[2]))
    loss = Loss(Blocks(run.model, run.divided.judged.batches(LOSS_BATCH)), 3)
    assert run.loss(half) == pytest.approx(loss.of(1, carved_layer(run.model, half, alone).module))
    two = Cut(cut.parent, (cut.layers[0], cut.layers[2]))
    assert run.loss(two) == pytest.approx(loss.without([1])[1])
    if name == "bert":
        parent = open_model(run.checkpoint)
        cosine = fidelity(apply_in_memory(parent, half), parent, run.divided.judged)
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
    assert found.verified.by == "blocks"
    assert set(found.losses) == {"predicted", "measured", "repaired"}


@pytest.mark.parametrize(
    ("name", "others", "foretold"),
    [
        ("llama", {"shape": "per-layer"}, "predicted_repaired"),
        ("gpt2", {"shape": "per-layer"}, "predicted_repaired"),
        ("llama", {}, "predicted"),
        ("llama", {"shape": "per-layer", "criterion": "output_energy"}, "predicted"),
        ("llama", {"shape": "per-layer", "repair": "none"}, "predicted"),
        ("bert", {"shape": "per-layer"}, "predicted"),
    ],
)
def test_a_foretold_loss_says_whether_repair_is_in_it(
    name: str, others: dict[str, Any], foretold: str, tmp_path: Path
) -> None:
    parent = saved(tmp_path / "parent", name)
    wishes = {"budgets": {"max_params": "0.9x"}, "text": "random", "sequences": 12, "length": 12}
    losses = carve(parent, **wishes, **others).losses
    assert list(losses) == [foretold, "measured"]


@pytest.mark.parametrize("name", ["llama", "bert"])
@pytest.mark.parametrize("repair", ["none", "least-squares"])
def test_sizes_by_shares_have_losses_too(name: str, repair: str, tmp_path: Path) -> None:
    """What is kept outright loses what the same sizes lose within budgets."""
    parent = saved(tmp_path / "parent", name)
    text: dict[str, Any] = {"text": "random", "sequences": 12, "length": 16, "repair": repair}
    planned = carve(parent, keep_ffn=0.5, plan="weights", **text)
    assert set(planned.losses) == {"measured"}
    within = {"max_params": planned.costs["child"]["params"], "keep_layers": 1.0, "keep_heads": 1.0}
    budget = carve(parent, plan="measured", multiple_of=20, **within, **text)
    assert budget.cut.uniform
    assert budget.widths == planned.widths
    assert budget.losses["measured"] == planned.losses["measured"] > 0
    written = carve(parent, tmp_path / "child", keep_ffn=0.5, **text)
    assert written.losses["measured"] == planned.losses["measured"]
    assert ("repaired" in written.losses) == (repair != "none")
    assert written.losses.get("repaired", 0.0) < written.losses["measured"]


def test_no_text_no_loss(tmp_path: Path) -> None:
    assert carve(saved(tmp_path / "parent", "llama"), tmp_path / "child", keep_ffn=0.5).losses == {}


def test_a_cut_that_moves_nothing_loses_nothing(tmp_path: Path) -> None:
    """Rounding is not told as a negative loss."""
    network = mapped_model(Checkpoint.open(saved(tmp_path / "parent", "llama")))
    blocks = Blocks(network, [{"input_ids": torch.randint(64, (2, 16))}])
    assert 0.0 <= Loss(blocks, 3).of_cut(Cut.whole(dimensions_of(network))) < 1e-6
