"""Killed at any moment and started again: the same child; each part is measured once."""

import importlib
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from carvings import carve, killed_while
from forked import contents, die, in_another_process, killed_at
from numpy.lib.npyio import NpzFile
from tiny import saved

import zerolm
from zerolm.carving.pace import FISHER, SCORING, CarvingWork, Pace
from zerolm.carving.request import MethodRequest, methods_of
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint, writer
from zerolm.io.folders import new_folder
from zerolm.networks.blocks import Blocks
from zerolm.planning.size_request import SizeRequest
from zerolm.progress import silent
from zerolm.registry import Entry
from zerolm.text.defaults import GENERATED
from zerolm.units.importance.criteria import CRITERIA
from zerolm.units.kept_units import dimensions

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
WISHES: dict[str, Any] = {
    "max_body_params": "0.6x", "shape": "per-layer", "format": "padded", "text": "random", "sequences": 8,
    "length": 8,
}  # fmt: skip
MOMENTS = (
    ("computing Fisher", 2), ("scoring units", 2), ("estimating the loss of every cut", 2),
    ("measuring the best plans", 2), ("repairing", 2), ("reopening the child", 1),
)  # fmt: skip


def test_a_carving_goes_on_where_it_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed ever later, each time with what the earlier runs have kept."""
    parent, out = saved(tmp_path / "parent", "llama"), tmp_path / "child"
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / "other"))
    zerolm.carve(parent, tmp_path / "whole", **WISHES)
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / "cache"))
    before = contents(parent)
    for words, step in MOMENTS:
        work = partial(zerolm.carve, parent, out, **WISHES, progress=killed_while(words, step))
        assert in_another_process(work) == signal.SIGKILL
        assert not out.exists()
    zerolm.carve(parent, out, **WISHES)
    assert contents(out) == contents(tmp_path / "whole")
    assert contents(parent) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "child", "other", "parent", "whole"]


def test_no_half_child_when_killed_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, out = saved(tmp_path / "parent", "llama"), tmp_path / "child"
    zerolm.carve(parent, tmp_path / "whole", keep_ffn=0.5, criterion="capacity")
    write = writer._write
    for moment in (0, 7, 20):
        step = killed_at(moment)

        def some(file: Any, tensor: Any, step: Callable[[object], None] = step) -> None:
            step(tensor)
            write(file, tensor)

        monkeypatch.setattr(writer, "_write", some)
        assert (
            in_another_process(lambda: zerolm.carve(parent, out, keep_ffn=0.5, criterion="capacity"))
            == signal.SIGKILL
        )
        assert not out.exists()
    monkeypatch.setattr(writer, "_write", write)
    zerolm.carve(parent, out, keep_ffn=0.5, criterion="capacity")
    assert contents(out) == contents(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["child", "parent", "whole"]


def test_an_earlier_child_survives_kills_at_renames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old one has stepped aside and the new one is not there yet: the next run puts the old one back."""
    parent, out = saved(tmp_path / "parent", "llama"), tmp_path / "child"
    zerolm.carve(parent, out, keep_ffn=0.5, criterion="capacity")
    first = contents(out)
    rename = os.rename

    def once(source: Any, target: Any) -> None:
        if Path(target) == out:
            die()
        rename(source, target)

    monkeypatch.setattr(os, "rename", once)
    again: dict[str, Any] = {"keep_ffn": 0.25, "criterion": "capacity", "force": True}
    assert in_another_process(lambda: zerolm.carve(parent, out, **again)) == signal.SIGKILL
    monkeypatch.setattr(os, "rename", rename)
    assert not out.exists()
    with pytest.raises(RuntimeError), new_folder(out, force=True):
        raise RuntimeError
    assert contents(out) == first
    zerolm.carve(parent, out, **again)
    assert contents(out) != first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["child", "parent"]


BASIS, UNITS = "computing Fisher information", "scoring units by"
PRICES, GONE = "estimating the loss of every cut", "measuring the loss without layer"
FINALISTS, PLAN = "measuring the best plans, repaired", "measuring the plan"
STEPS = (BASIS, UNITS, PRICES, GONE, FINALISTS, PLAN, "repairing", "opening")
SETTINGS: dict[str, Any] = {
    "budgets": {"max_params": "0.7x"}, "text": "random", "sequences": 12, "length": 12,
    "criterion": "surgeon",
}  # fmt: skip
PLUGIN = """
import numpy as np
from zerolm.units.importance.activations import Amp
from zerolm.units.importance.criterion import Additive

class ByTokens(Amp):
    pass

def by_weights(parts, seed):
    return Additive({kind: [np.arange(float(len(x[0].squares))) for x in parts[kind]] for kind in parts})
"""


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, set[str]]:
    """A parent, the cache that its first carving left, and which steps that took."""
    folder = tmp_path_factory.mktemp("first")
    saved(folder / "parent", "llama")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZEROLM_CACHE", str(folder / "cache"))
        steps = carved(folder / "parent", patch)
    return folder / "parent", folder / "cache", steps


@pytest.fixture
def parent(first: tuple[Path, Path, set[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ZEROLM_CACHE", str(shutil.copytree(first[1], tmp_path / "cache")))
    return first[0]


@pytest.fixture
def passes(parent: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., set[str]]:
    return partial(carved, parent, monkeypatch)


def carved(parent: Path, patch: pytest.MonkeyPatch, **changes: Any) -> set[str]:
    """Carve the parent; which steps sent hidden states through layers of a network."""
    call, step, runs = Blocks.call, [""], Counter[str]()

    def counted(blocks: Blocks, *given: Any, **more: Any) -> Any:
        runs[step[0]] += 1
        return call(blocks, *given, **more)

    def told(words: str, *_: int) -> None:
        step[0] = next((name for name in STEPS if words.startswith(name)), step[0])

    with patch.context() as patched:
        patched.setattr(Blocks, "call", counted)
        patched.setattr("zerolm.carving.session.measured_pace", lambda *_: Pace(0.0, 0.0, 0.0, 0.0, 0.0))
        carve(parent, **SETTINGS | changes, progress=told)
    return set(+runs)


@pytest.mark.parametrize(
    ("changes", "again"),
    [
        ({}, {PLAN}),
        ({"criterion": "magnitude"}, {PRICES, FINALISTS, PLAN}),
        ({"criterion": "output_energy"}, {UNITS, PRICES, FINALISTS, PLAN}),
        ({"budgets": {"max_params": "0.5x"}}, {FINALISTS, PLAN}),
        ({"repair": "none"}, {PRICES, FINALISTS, PLAN}),
        ({"plan": "weights"}, {PLAN}),
        ({"seed": 1}, {BASIS, UNITS, PRICES, GONE, FINALISTS, PLAN}),
    ],
)
def test_another_choice_measures_what_depends_on_it(
    changes: dict[str, Any], again: set[str], passes: Callable[..., set[str]]
) -> None:
    assert passes(**changes) == again


def test_the_first_time_everything_is_measured(first: tuple[Path, Path, set[str]]) -> None:
    assert first[2] == {BASIS, UNITS, PRICES, GONE, FINALISTS, PLAN}


def test_stored_passes_take_no_time(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint.open(parent)
    request = MethodRequest(criterion="surgeon", text="random", sequences=12, length=12)
    methods = methods_of(SizeRequest(), request)
    work = CarvingWork(dimensions(checkpoint), methods, narrows=False, plans=1, is_written=False)
    pace = Pace(1e-3, 4e-3, 1e-4, 1e-12, 1e-12)
    first = work.seconds(pace, 12)

    def shares(**changes: Any) -> dict[str, float]:
        return Session(checkpoint, replace(methods, **changes), silent).stored_shares()

    read: list[str] = []
    read_one = NpzFile.__getitem__
    with monkeypatch.context() as recorded:
        recorded.setattr(NpzFile, "__getitem__", lambda file, key: read.append(key) or read_one(file, key))
        assert shares() == {SCORING: 1.0, FISHER: 1.0}
    assert read == ["sha256", "batches"]  # the fingerprint of the weights, and how far the pass came
    assert shares(seed=1) == {SCORING: 0.0, FISHER: 0.0}
    assert shares(text=GENERATED) == {}
    run = Session(checkpoint, methods, silent)
    folder = run.cache("importances", "surgeon", run.pooling).folder
    assert folder is not None
    (folder / "layer-2.npz").unlink()
    depth = work.parent.depth
    assert shares() == {SCORING: (depth - 1) / depth, FISHER: 1.0}
    again = replace(work, stored=shares())
    assert again.seconds(pace, 12) == first | {SCORING: pytest.approx(first[SCORING] / depth), FISHER: 0.0}
    assert again.seconds(pace, 5) == work.seconds(pace, 5)  # other sequences are other passes


def test_keys_name_what_parts_depend_on(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint.open(parent)
    methods = methods_of(SizeRequest(), MethodRequest(text="random", sequences=4, length=8))

    def key(checkpoint: Checkpoint = checkpoint, **changes: Any) -> Path | None:
        return Session(checkpoint, replace(methods, **changes), silent).cache("basis").folder

    usual = key()
    assert usual == key(criterion="amp", repair="none", plan="weights")
    family, config = (
        replace(checkpoint.family, head_classes=("Other",)),
        checkpoint.config | {"rms_norm_eps": 1e-4},
    )
    others = [key(replace(checkpoint, family=family)), key(replace(checkpoint, config=config))]
    others += [key(seed=1), key(length=9), key(sequences=5)]
    monkeypatch.setattr("zerolm.carving.session.CACHE_FORMAT", 0)
    assert len({usual, *others, key()}) == 7


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "criteria_beside.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(CRITERIA, "_entries", dict(CRITERIA._entries))
    module = importlib.import_module("criteria_beside")
    CRITERIA.add(Entry("by tokens", module.ByTokens, "", ("tokens", "torch")))
    CRITERIA.add(Entry("by weights", module.by_weights))
    yield module
    del sys.modules["criteria_beside"]


@pytest.mark.usefixtures("plugin")
def test_a_criterion_of_a_plugin_is_measured_each_time(passes: Callable[..., set[str]]) -> None:
    """Its code may have changed."""
    for _ in range(2):
        assert UNITS in passes(criterion="by tokens")
    passes(criterion="by weights")
    assert passes(criterion="by weights") == {PLAN}
