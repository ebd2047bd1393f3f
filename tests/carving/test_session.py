"""What a carving is asked for and runs through the network: losses of whole cuts, and its time."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve
from divergences import fidelity
from hypothesis import given
from hypothesis import strategies as st
from tiny import saved, word_tokenizer

from zerolm.carving.loss import LOSS_BATCH, Loss
from zerolm.carving.pace import LEAST_TOKENS, LONG, CarvingWork, Pace, announcement, fitting, loss_by_twice
from zerolm.carving.request import MethodRequest, Methods, methods_of
from zerolm.carving.session import Session
from zerolm.carving.vocabulary.byte_losses import LOSS_TOKENS
from zerolm.checkpoints import Checkpoint
from zerolm.costs import COSTS
from zerolm.networks.blocks import Blocks
from zerolm.networks.opener import open_model
from zerolm.planning.size_request import SizeRequest
from zerolm.settings.request import build, settings_of
from zerolm.text.calibration import tokens_of
from zerolm.units.kept_units import Cut, Dimensions, LayerCut, dimensions
from zerolm.units.pruning import apply_in_memory
from zerolm.verbs.carve import CarveSettings


def running(folder: Path) -> Session:
    method = Methods("output_energy", "prices", "random", sequences=6, length=12, repair="least-squares")
    return Session(Checkpoint.open(folder), method, lambda text: None)


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "gemma2"])
def test_the_loss_of_a_cut_is_that_of_the_carved_network(name: str, tmp_path: Path) -> None:
    run = running(saved(tmp_path / "parent", name))
    cut = Cut.whole(dimensions(run.checkpoint))
    assert 0.0 <= run.loss(cut) < 1e-6  # rounding is no negative loss
    groups = cut.layers[0]["groups"][: -1 if name in ("llama", "gemma2") else None]
    first = LayerCut.of(0, groups, cut.layers[0]["ffn"])
    alone = LayerCut.of(1, cut.layers[1]["groups"], np.arange(0, cut.parent.ffn, 2))
    parent, judged = open_model(run.checkpoint), run.divided.judged
    for layers in ((first, *cut.layers[1:]), (cut.layers[0], alone, cut.layers[2]), cut.layers[::2]):
        fewer = Cut(cut.parent, layers)
        child = apply_in_memory(parent, fewer)
        if name == "bert":
            wanted = 1.0 - fidelity(child, parent, judged)
        else:
            with torch.no_grad():
                a, b = (torch.log_softmax(each.eval()(judged.ids).logits, -1) for each in (parent, child))
            wanted = float((a.exp() * (a - b)).sum(-1).mean())
        assert run.loss(fewer) == pytest.approx(wanted, rel=1e-3, abs=1e-6)
    loss = Loss(Blocks(run.model, judged.batches(LOSS_BATCH)))
    assert loss.without([1]) == {1: pytest.approx(run.loss(fewer))}


def test_random_tokens_are_none_that_no_text_holds(tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", "llama")
    word_tokenizer(parent, special="w9")
    ids = tokens_of(Checkpoint.open(parent), "random", sequences=40, length=64).ids
    assert 9 not in ids
    assert len(ids.unique()) == 63


@pytest.mark.parametrize(
    ("name", "others", "predicted"),
    [
        ("llama", {"shape": "per-layer"}, "predicted_repaired"),
        ("llama", {}, "predicted"),
        ("llama", {"shape": "per-layer", "repair": "none"}, "predicted"),
        ("bert", {"shape": "per-layer"}, "predicted"),
    ],
)
def test_the_name_of_a_predicted_loss(
    name: str, others: dict[str, Any], predicted: str, tmp_path: Path
) -> None:
    parent = saved(tmp_path / "parent", name)
    wishes = {"budgets": {"max_params": "0.9x"}, "text": "random", "sequences": 12, "length": 12}
    assert list(carve(parent, **wishes, **others).losses) == [predicted, "measured"]


@pytest.mark.parametrize(("name", "repair"), [("llama", "least-squares"), ("bert", "none")])
def test_sizes_by_shares_have_losses_too(name: str, repair: str, tmp_path: Path) -> None:
    """What is kept outright loses what the same sizes lose within budgets."""
    parent = saved(tmp_path / "parent", name)
    text: dict[str, Any] = {"text": "random", "sequences": 12, "length": 16, "repair": repair}
    planned = carve(parent, keep_ffn=0.5, plan="weights", **text)
    assert set(planned.losses) == {"measured"}
    within = {"max_params": planned.costs["child"]["params"], "keep_layers": 1.0, "keep_heads": 1.0}
    budget = carve(parent, multiple_of=20, keep_hidden=1.0, **within, **text)
    assert budget.cut.uniform
    assert budget.widths == planned.widths
    assert budget.losses["measured"] == planned.losses["measured"] > 0
    written = carve(parent, tmp_path / "child", keep_ffn=0.5, **text)
    assert written.losses["measured"] == planned.losses["measured"]
    assert ("repaired" in written.losses) == (repair != "none")
    assert written.losses.get("repaired", 0.0) < written.losses["measured"]


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
    st.sampled_from(["prices", "weights"]),
    st.sampled_from(["none", "least-squares"]),
    st.integers(3, 2000),
    st.booleans(),
    st.booleans(),
)


@given(WORKS, PACES, st.floats(1e-3, 1e6), st.floats(0, 1e6))
def test_as_much_is_read_as_its_time_allows(
    work: CarvingWork, pace: Pace, limit: float, spent: float
) -> None:
    def total(sequences: int) -> float:
        return spent + sum(work.seconds(pace, sequences).values())

    asked = work.methods.count
    least = min(work.least, asked)
    assert least * 64 >= min(PARENT.ffn, asked * 64)  # a token for each input of the widest matrix
    if total(least) > limit:
        with pytest.raises(
            ValueError, match=f"{least} sequences of 64 tokens are the fewest that make sense"
        ):
            fitting(work, pace, limit, spent)
        return
    sequences = fitting(work, pace, limit, spent)
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


@given(WORKS, PACES, st.lists(st.integers(1, 1000), max_size=4))
def test_every_vocabulary_takes_a_pass_and_its_head(work: CarvingWork, pace: Pace, sizes: list[int]) -> None:
    work = replace(work, vocab=1000)
    each = [work.of_vocabularies(pace, [size]) for size in sizes]
    assert work.of_vocabularies(pace, sizes) == pytest.approx(sum(each))
    whole = work.of_vocabularies(pace, [1000])
    assert whole == pytest.approx(LOSS_TOKENS * (PARENT.depth * pace.layer + pace.head))
    assert all(seconds <= whole for seconds in each)


@given(WORKS, PACES)
def test_a_long_carving_is_announced_and_what_is_faster_is(work: CarvingWork, pace: Pace) -> None:
    text, total = announcement(work, pace), work.total(pace)
    assert bool(text) == (total >= LONG)
    if faster := re.search(r"--sequences (\d+) takes", text):
        assert work.total(pace, int(faster[1])) < 0.8 * total
    elif text:
        assert work.total(pace, max(work.least, work.methods.count // 4)) >= 0.8 * total


def test_a_carving_keeps_its_time_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = saved(tmp_path / "parent", "llama")
    child: dict[str, Any] = {"max_params": "0.8x", "text": "random", "sequences": 64, "length": 16}
    monkeypatch.setattr(
        "zerolm.carving.session.measured_pace", lambda *_: Pace(1e-1, 4e-1, 1e-2, 1e-12, 1e-12)
    )
    said: list[str] = []
    carved = carve(parent, **child, for_=500.0, progress=lambda text, *_: said.append(text))
    counted = int(carved.notes[0].split()[0])
    assert 1 <= counted < 64
    assert carved.notes[0] == f"{counted} sequences, to last about 8 min"
    assert carved.notes[0] in said
    monkeypatch.setattr(
        "zerolm.carving.session.measured_pace", lambda *_: Pace(100.0, 400.0, 100.0, 1e-12, 1e-12)
    )
    with pytest.raises(
        ValueError, match="--for 8 min is too short: 3 sequences of 16 tokens are the fewest that make sense"
    ):
        carve(parent, tmp_path / "child", **child, for_=500.0)
    assert not (tmp_path / "child").exists()
    with pytest.raises(ValueError, match="--for chooses how much of a text is read"):
        carve(parent, keep_ffn=0.5, for_=500.0)


@given(st.floats(0, 10), st.floats(-10, 1e6), st.integers(4, 1 << 20), st.integers(2, 8))
def test_twice_the_tokens_leave_what_the_law_says(a: float, b: float, tokens: int, fewer: int) -> None:
    """More tokens never cost."""
    by_all, by_fewer = a + b / tokens, a + fewer * b / tokens
    assert loss_by_twice(by_all, by_fewer, fewer) == pytest.approx(
        by_all - max(0.0, b) / (2 * tokens), abs=1e-9
    )


@pytest.mark.parametrize(("words", "advice"), [(400, "--sequences 16"), (60, "give a longer text")])
def test_advice_on_more_tokens_can_be_followed(
    words: int, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = saved(tmp_path / "parent", "llama")
    word_tokenizer(parent)
    text = tmp_path / "text.txt"
    text.write_text(" ".join(f"w{i * i % 61}" for i in range(words)))
    monkeypatch.setattr(Session, "loss_by_fewer", lambda *_: 100.0)
    note = carve(parent, tmp_path / "child", keep_ffn=0.5, text=text, sequences=8, length=10).notes[-1]
    assert "on a quarter of the tokens it loses 100," in note
    assert note.split("on twice the number about ")[1].split(": ")[1].startswith(advice)
    slow = Pace(100.0, 400.0, 100.0, 1e-12, 1e-12)
    monkeypatch.setattr("zerolm.carving.session.measured_pace", lambda *_: slow)
    monkeypatch.delattr(Session, "loss_by_fewer")
    note = carve(parent, tmp_path / "slow", keep_ffn=0.5, text=text, sequences=8, length=10).notes[-1]
    assert note.endswith(f"tokens; its widest matrices need {LEAST_TOKENS:,}: {advice}")


SHARES = st.dictionaries(
    st.sampled_from(["ffn", "heads", "layers", "hidden"]), st.floats(0, 1, exclude_min=True)
)
AMOUNTS = st.one_of(st.integers(0, 10**12), st.sampled_from(["0.8x", "0.05x"]))
BUDGETS = st.dictionaries(st.sampled_from([f"max_{cost}" for cost in COSTS]), AMOUNTS)


@given(SHARES, BUDGETS, st.sampled_from([None, "uniform", "per-layer"]), st.integers(1, 9))
def test_flags_and_python_ask_for_the_same(
    keep: dict[str, float], budgets: dict[str, Any], shape: str | None, ways: int
) -> None:
    flags = {f"keep_{kind}": share for kind, share in keep.items()} | budgets
    typed = CarveSettings.parse({"parent": "p", **flags, "shape": shape, "tensor_parallel": ways}).size
    request = SizeRequest.of(keep, budgets, shape=shape, tensor_parallel=ways)
    assert typed == request
    assert (request.keep, request.budgets) == (keep, budgets)
    assert request.is_fixed == (not budgets and "layers" not in keep)
    assert request.within({"max_params": 7}) == SizeRequest.of(
        keep, {"max_params": 7}, shape=shape, tensor_parallel=ways
    )


def test_a_space_says_the_shape_unless_one_is_given() -> None:
    assert SizeRequest().is_uniform
    assert not SizeRequest(space="lonas-bert").is_uniform
    assert SizeRequest(space="lonas-bert", shape="uniform").is_uniform


@pytest.mark.parametrize(
    ("size", "text", "usual"),
    [
        (SizeRequest.of({"ffn": 0.5}), None, ("surgeon", "weights", "least-squares")),
        (SizeRequest.of({}, {"max_params": 9}), None, ("surgeon", "prices", "least-squares")),
        (SizeRequest.of({"all": 1}), None, ("capacity", "weights", "none")),
        (SizeRequest.of({"ffn": 0.5}), "random", ("surgeon", "weights", "least-squares")),
        (SizeRequest.of({"layers": 0.5}), "random", ("surgeon", "prices", "least-squares")),
        (SizeRequest.of({}, {"max_params": 9}), "random", ("surgeon", "prices", "least-squares")),
    ],
)
def test_what_is_not_named_fits(size: SizeRequest, text: str | None, usual: tuple[str, str, str]) -> None:
    methods = methods_of(size, MethodRequest(text=text, seed=3))
    assert (methods.criterion, methods.plan, methods.repair) == usual
    assert (methods.text, methods.seed) == (text or ("generated" if usual[0] == "surgeon" else None), 3)
    named = methods_of(size, MethodRequest("prefix", "heuristic", text, repair="none"))
    assert (named.criterion, named.plan, named.repair) == ("prefix", "heuristic", "none")


def test_every_setting_of_the_command_is_declared_by_what_has_it() -> None:
    values = {item.name: item.default for item in (*settings_of(SizeRequest), *settings_of(MethodRequest))}
    assert build(SizeRequest, values) == SizeRequest()
    assert build(MethodRequest, values) == MethodRequest()
    assert {f"max_{cost}" for cost in COSTS} <= values.keys()


@pytest.mark.parametrize("name", ["llama", "bert"])
@pytest.mark.parametrize("better", [True, False])
def test_separate_sizes_are_measured_against_equal_ones(
    name: str, better: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan of least loss is taken, whether its layers are equal or not."""
    request: dict[str, Any] = {"max_body_params": "0.9x", "keep_heads": 1.0, "keep_hidden": 1.0}
    request |= {"text": "random", "sequences": 12, "length": 12, "shape": "per-layer"}
    monkeypatch.setattr(Session, "finals", lambda _, cuts: [float(cut.uniform is not better) for cut in cuts])
    assert carve(saved(tmp_path / "parent", name), **request).cut.uniform is better


@pytest.mark.parametrize(("form", "name"), [("hf", "stock class"), ("gguf", "gguf")])
def test_one_size_for_all_layers_is_required_before_any_work(form: str, name: str, tmp_path: Path) -> None:
    parent, steps = saved(tmp_path / "parent", "qwen2"), list[str]()
    with pytest.raises(
        ValueError, match=f"{name} has one size for all layers.* give --shape uniform, or --f"
    ):
        carve(
            parent,
            tmp_path / "child",
            form=form,
            max_params="0.9x",
            shape="per-layer",
            text="random",
            progress=lambda step, *_: steps.append(step),
        )
    assert steps == []
    assert not (tmp_path / "child").exists()
