"""What a carving runs through the network: losses of whole cuts, how long it takes, what does not fit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve
from divergences import fidelity
from hypothesis import given
from hypothesis import strategies as st
from made_tokenizers import CORPUS, byte_level
from made_vocabularies import decoder
from tiny import saved, word_tokenizer

from zerolm.carving import finished_child
from zerolm.carving import pace as pacing
from zerolm.carving.amount import loss_by_twice
from zerolm.carving.pace import CarvingWork, Pace, announcement, fitting
from zerolm.carving.request import Methods
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint
from zerolm.children import verify
from zerolm.networks.blocks import Blocks
from zerolm.networks.opener import mapped_model, open_model
from zerolm.planning.sensitivity import LOSS_BATCH, Loss
from zerolm.text.calibration import tokens_of
from zerolm.units.kept_units import Cut, Dimensions, LayerCut, dimensions
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
        ("llama", {}, "predicted"),
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


@pytest.mark.parametrize(("name", "repair"), [("llama", "least-squares"), ("bert", "none")])
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


def test_a_cut_that_moves_nothing_loses_nothing(tmp_path: Path) -> None:
    """Rounding is not told as a negative loss."""
    network = mapped_model(Checkpoint.open(saved(tmp_path / "parent", "llama")))
    blocks = Blocks(network, [{"input_ids": torch.randint(64, (2, 16))}])
    assert 0.0 <= Loss(blocks, 3).of_cut(Cut.whole(dimensions_of(network))) < 1e-6


PARENT = Dimensions(depth=28, hidden=1024, heads=16, kv_heads=8, head_size=128, ffn=3072)
SPEEDS = st.floats(1e-9, 1e-3)
PACES = st.builds(Pace, SPEEDS, SPEEDS, SPEEDS, st.floats(1e-12, 1e-9), st.floats(1e-12, 1e-9))
WORKS = st.builds(
    lambda criterion, plan, repair, sequences, narrows, written: CarvingWork(
        PARENT,
        Methods(criterion, plan, "random", sequences=sequences, length=64, repair=repair),
        narrows,
        3,
        written,
    ),
    st.sampled_from(["surgeon", "output_energy", "capacity"]),
    st.sampled_from(["prices", "measured", "weights"]),
    st.sampled_from(["none", "least-squares"]),
    st.integers(3, 2000),
    st.booleans(),
    st.booleans(),
)


@given(WORKS, PACES, st.floats(1e-3, 1e6))
def test_as_much_is_read_as_its_time_allows(work: CarvingWork, pace: Pace, limit: float) -> None:
    def total(sequences: int) -> float:
        return sum(work.seconds(pace, sequences).values())

    asked = work.methods.count
    least = min(work.least, asked)
    assert least * 64 >= min(PARENT.ffn, asked * 64)  # a token for each input of the widest matrix
    if total(least) > limit:
        with pytest.raises(
            ValueError, match=f"{least} sequences of 64 tokens are the fewest that make sense"
        ):
            fitting(work, pace, limit)
        return
    sequences = fitting(work, pace, limit)
    assert least <= sequences <= asked
    assert total(sequences) <= limit
    assert sequences == asked or total(sequences + max(1, sequences // 6)) > limit


@given(WORKS, PACES)
def test_more_sequences_and_slower_networks_take_longer(work: CarvingWork, pace: Pace) -> None:
    parts = work.seconds(pace, 40)
    assert min(parts.values()) >= 0.0
    slower = work.seconds(Pace(*(2 * each for each in vars(pace).values())), 40)
    for name, seconds in parts.items():
        assert slower[name] == pytest.approx(2 * seconds)
        assert work.seconds(pace, 80)[name] >= seconds
    assert ("predicting cuts" in parts) == (work.methods.plan == "prices")
    assert ("Fisher information" in parts) == (work.narrows or work.methods.criterion == "surgeon")


def test_what_would_take_less_is_named() -> None:
    work = CarvingWork(
        PARENT,
        Methods("output_energy", "measured", "t", sequences=64, length=256, repair="least-squares"),
        True,
        3,
        True,
    )
    slow = Pace(5e-4, 2e-3, 5e-3, 5e-11, 5e-11)
    said = announcement(work, slow)
    assert "--plan prices takes" in said
    assert "--sequences 16 takes" in said
    assert announcement(work, Pace(*(1e-15,) * 5)) == ""


def test_a_carving_keeps_its_time_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = saved(tmp_path / "parent", "llama")
    child: dict[str, Any] = {"max_params": "0.8x", "text": "random", "sequences": 64, "length": 16}
    monkeypatch.setattr(pacing, "measured_pace", lambda *_: Pace(1e-3, 4e-3, 1e-4, 1e-12, 1e-12))
    monkeypatch.setattr(
        "zerolm.carving.session.measured_pace", lambda *_: Pace(1e-3, 4e-3, 1e-4, 1e-12, 1e-12)
    )
    said: list[str] = []

    def told(text: str, *_: int) -> None:
        said.append(text)

    carved = carve(parent, **child, for_=5.0, progress=told)
    counted = int(carved.note.split()[0])
    assert 1 <= counted < 64
    assert carved.note.startswith(f"{counted} sequences, to last about 5 s")
    assert carved.note.split(";")[0] in said
    monkeypatch.setattr("zerolm.carving.session.measured_pace", lambda *_: Pace(1.0, 4.0, 1.0, 1e-12, 1e-12))
    with pytest.raises(
        ValueError, match="--for 5 s is too short: 3 sequences of 16 tokens are the fewest that make sense"
    ):
        carve(parent, tmp_path / "child", **child, for_=5.0)
    assert not (tmp_path / "child").exists()
    with pytest.raises(ValueError, match="--for chooses how much of a text is read"):
        carve(parent, keep_ffn=0.5, for_=5.0)


@given(st.floats(0, 10), st.floats(0, 1e6), st.integers(4, 1 << 20), st.integers(2, 8))
def test_twice_the_tokens_leave_what_the_law_says(a: float, b: float, tokens: int, fewer: int) -> None:
    by_all, by_fewer = a + b / tokens, a + fewer * b / tokens
    assert loss_by_twice(by_all, by_fewer, fewer) == pytest.approx(a + b / (2 * tokens), abs=1e-9)


def test_more_tokens_never_cost() -> None:
    assert loss_by_twice(0.2, 0.1, 4) == 0.2


def test_a_short_text_is_said_to_be_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_child, "WORTH_TOKENS", -1.0)
    parent = decoder(tmp_path / "parent", byte_level())
    text = tmp_path / "text.txt"
    text.write_text(CORPUS[0] * 20, "utf-8")
    flags = {"keep_ffn": 0.5, "text": str(text), "sequences": 24, "length": 16}
    carved = carve(parent, tmp_path / "child", **flags)
    points = re.search(
        r"quarter of the tokens it loses ([\d.e-]+), on twice the number about ([\d.e-]+): --sequences 48",
        carved.note,
    )
    assert points is not None
    by_fewer, by_twice = (float(point.rstrip(".")) for point in points.groups())
    assert by_twice == pytest.approx(loss_by_twice(carved.losses["repaired"], by_fewer, 4), rel=1e-2)
    for other in ({"for_": 3600.0}, {"repair": "none"}):
        assert "quarter of" not in carve(parent, tmp_path / str(len(other)), force=True, **flags | other).note
