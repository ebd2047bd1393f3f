"""``benchmarks/llama_small.py``: the cross as it is planned; a small one trained, stopped and published."""

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from label_training import some_text

pytest.importorskip("torch")
from zerolm.comparison.bench import bench
from zerolm.groundtruth.reader import read, views
from zerolm.settings.compute import TrainedOn
from zerolm.training.request import Execution, Schedule, TrainingRequest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import llama_small
import llama_small_blocks
import llama_small_claims
import llama_small_law
import llama_small_page
import llama_small_plan
from llama_small import BLOCKS, LLAMA
from llama_small_blocks import BlockShape
from llama_small_claims import Pair, contrast
from llama_small_law import Measured
from llama_small_plan import Planned, Shape, planned

REQUEST = TrainingRequest(
    160, 2, 16, Schedule(0.01), execution=Execution(TrainedOn(dtype="float32")), checkpoints=5, measured=5
)


def test_the_file_is_the_plan() -> None:
    for plan in (LLAMA, llama_small.RULED, *llama_small.PLANS.values()):
        truth, listed = read(llama_small.FOLDER / plan.file), plan.planned()
        assert [e.architecture for e in truth.architectures] == [one.architecture.choices for one in listed]
        assert [entry.id for entry in truth.architectures] == [one.id for one in listed]
        assert len(views(truth)[0].architectures) == len(listed)
        source = read(llama_small.FOLDER / LLAMA.file).source
        batch = {} if plan.batches == 1 else {"batch": plan.request.batch}
        assert truth.source == {**source, "tokens": llama_small.tokens_of(plan.request), **batch}


def test_the_benchmark_of_the_package_is_that_of_the_rows() -> None:
    rows = llama_small.read_rows(llama_small.FOLDER / LLAMA.rows)
    assert json.loads(llama_small.SHIPPED.read_text("utf-8")) == llama_small.benchmark(rows)
    (section,) = bench(["llama_small"], draws=20).sections
    trained = {one.id for one in planned() if one.id in {told["id"] for told in rows}}
    assert {row.n for row in section.rows} == {len(trained)}
    groups = Counter(one.size for one in planned() if one.id in trained)
    assert section.alike == f"within {len(groups)} groups"
    assert section.rows[0].pairs == sum(count * (count - 1) // 2 for count in groups.values())


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plan of three networks, two of them from two seeds, and a folder for its run."""
    text = some_text(tmp_path)
    judged = tmp_path / "judged.txt"
    judged.write_text(" ".join(f"w{i * i % 67}" for i in range(700)))
    monkeypatch.setattr(llama_small, "texts", lambda work: (text, judged))
    monkeypatch.setattr(llama_small, "REQUEST", REQUEST)
    for module in (llama_small, llama_small_plan, llama_small_blocks):
        monkeypatch.setattr(module, "SETTINGS", {"vocab": 300, "tied": True})
        monkeypatch.setattr(module, "SIZES", {"5k": 5000, "9k": 9000})
    cross = {
        "5k": [Shape("base", 1, 16, 8), Shape("depth", 2, 16, 8)],
        "9k": [Shape("base", 2, 16, 8, seeds=1)],
    }
    monkeypatch.setattr(llama_small_plan, "CROSS", cross)
    monkeypatch.setattr(llama_small_plan, "LONGER", ["9k 2x16 s8"])
    shapes = [
        BlockShape("sharing", "9k 2x16 s8", 2, 16, 8, "qk"),
        BlockShape("no FFN", "9k 2x16 s8", 8, 16, 8, ffn_stack=0),
    ]
    monkeypatch.setattr(llama_small_blocks, "SHAPES", shapes)
    monkeypatch.setattr(llama_small_blocks, "SIZE", "9k")
    for module in (llama_small, llama_small_law, llama_small_page):
        monkeypatch.setattr(module, "FOLDER", tmp_path / "published")
    (tmp_path / "published").mkdir()
    monkeypatch.setattr(llama_small, "SHIPPED", tmp_path / "llama_small.json")
    corpus = llama_small.read_text(tmp_path)
    for plan in (LLAMA, llama_small.RULED, *llama_small.PLANS.values()):
        document = llama_small.plan_document(corpus, plan)
        (tmp_path / "published" / plan.file).write_text(json.dumps(document))
    return tmp_path


def trained(work: Path) -> list[tuple[str, int]]:
    rows = llama_small.read_rows(work / "published" / "rows.jsonl")
    assert all(len(told["losses"]) == 5 and not told["failure"] for told in rows)
    return [(told["id"].split()[0], told["seed"]) for told in rows]


def test_a_run_that_was_stopped_goes_on(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After two networks, in the middle of writing the row of the second."""
    row = llama_small.row

    def failing(one: Planned, *more: Any) -> dict[str, Any]:
        if one.line == "depth":
            raise KeyboardInterrupt
        return row(one, *more)

    monkeypatch.setattr(llama_small, "row", failing)
    with pytest.raises(KeyboardInterrupt):
        llama_small.train_plan(work, ["5k", "9k"], 1)
    assert trained(work) == [("5k", 0)]
    with (work / "published" / "rows.jsonl").open("a") as file:
        file.write('{"id": "5k 2x')
    monkeypatch.setattr(llama_small, "row", row)
    llama_small.train_plan(work, ["5k"], 1)
    assert trained(work) == [("5k", 0), ("5k", 0), ("5k", 1), ("5k", 1)]
    for _ in range(2):
        llama_small.train_plan(work, ["5k", "9k"], 1)
        assert trained(work) == [("5k", 0), ("5k", 0), ("5k", 1), ("5k", 1), ("9k", 0)]


def test_another_text_is_refused(work: Path) -> None:
    (work / "text.txt").write_text(" ".join(f"w{i}" for i in range(2000)))
    (work / "judged.txt").write_text(" ".join(f"w{i}" for i in range(700)))
    with pytest.raises(SystemExit, match="the text made here has SHA-256"):
        llama_small.train_plan(work, ["5k"], 1)


def test_what_is_published_two_networks_reach_again(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    llama_small.train_plan(work, ["5k", "9k"], 1)
    llama_small.publish()
    truth = read(work / "llama_small.json")
    rows = llama_small.read_rows(work / "published" / "rows.jsonl")
    by_run = {(told["id"], told["seed"]): told["losses"] for told in rows}
    assert len(truth.architectures) == 3
    for entry in truth.architectures:
        assert entry.results["loss"] == by_run[entry.id, 0]["160"]
        assert entry.results["loss after 96 tokens"] == by_run[entry.id, 0]["96"]
        others = [by_run[entry.id, 1]["160"]] if (entry.id, 1) in by_run else []
        assert entry.repeats.get("loss", []) == others
    assert truth.source["noise"]["9k"] is None
    assert truth.source["noise"]["5k"]["runs"] == 4
    capsys.readouterr()
    llama_small.check_again(work, 2)
    table = capsys.readouterr().out.splitlines()[2:4]
    assert len({line.split("|")[1] for line in table}) == 2
    assert all(float(line.split("|")[4]) < 1e-5 for line in table)


def test_blocks_are_trained_and_held_against_llamas(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Training is muP's in both; the llama has one seed, each block two."""
    for plan in (LLAMA, BLOCKS):
        llama_small.train_plan(work, ["5k", "9k"], 1, plan)
    llama_small.publish()
    ours = llama_small.read_rows(work / "published" / "blocks.jsonl")
    *_, theirs = llama_small.read_rows(work / "published" / "rows.jsonl")
    assert [(told["line"], told["seed"]) for told in ours] == [
        (line, seed) for seed in (0, 1) for line in ("sharing", "no FFN")
    ]
    assert all(len(told["losses"]) == 5 and not told["failure"] for told in ours)
    assert len(read(work / "llama_small.json").architectures) == 3
    capsys.readouterr()
    llama_small_claims.show_blocks()
    page = capsys.readouterr().out.splitlines()
    runs = [
        [told["losses"]["160"] for told in ours if told["line"] == line] for line in ("sharing", "no FFN")
    ]
    pooled = (sum((a - b) ** 2 / 2 for a, b in runs) / 2) ** 0.5
    assert f" {pooled:.4f} nats" in page[2]
    shown = [line for line in page if line.startswith(("| sharing |", "| no FFN |"))]
    assert len(shown) == 4  # each for itself, then the claims
    for line, (a, b) in zip(shown, [*runs, *runs], strict=True):
        error = 2 * pooled * 1.5**0.5
        difference = (a + b) / 2 - theirs["losses"]["160"]
        assert f"| {difference:+.4f} ± {error:.4f} |" in line
        level = abs(difference) <= error
        assert line.endswith("| level |" if level else "| better |" if difference < 0 else "| worse |")
    llama_small.check_again(work, 1, BLOCKS)
    assert float(capsys.readouterr().out.splitlines()[2].split("|")[4]) < 1e-5


def test_a_llama_that_stands_in_several_pairs_is_no_new_evidence() -> None:
    """Two blocks against one llama: its noise does not halve. Two against two: all of it does."""

    def drawn(name: str, runs: int, loss: float) -> Measured:
        return Measured(replace(planned()[0], id=name), np.full((runs, 1), loss), (1,))

    blocks = [drawn("a", 2, 3.0), drawn("b", 2, 3.2)]
    llamas = [drawn("c", 4, 3.3), drawn("d", 4, 3.3)]
    alone = [Pair(block, llamas[0]) for block in blocks]
    apart = [Pair(block, llama) for block, llama in zip(blocks, llamas, strict=True)]
    assert contrast(alone[:1], 0.1) == pytest.approx((-0.3, 0.2 * (1 / 2 + 1 / 4) ** 0.5))
    assert contrast(alone, 0.1) == pytest.approx((-0.2, 0.2 * (1 / 4 + 1 / 4) ** 0.5))
    assert contrast(apart, 0.1) == pytest.approx((-0.2, 0.2 * (1 / 4 + 1 / 8) ** 0.5))


def test_rules_of_depth_and_rates_have_rows_beside_each_other(work: Path) -> None:
    ways = [("linear", 0.004), ("linear", 0.008), ("none", 0.008)]
    for _ in range(2):  # what is trained is not trained again
        for rule, rate in ways:
            plan = replace(llama_small.RULED, depth_rule=rule, rate=rate)
            llama_small.train_plan(work, ["9k"], 1, plan, 1)
    rows = llama_small.read_rows(work / "published" / "depth_rule.jsonl")
    assert [(told.get("depth_rule", "none"), told["rate"]) for told in rows] == ways
    assert len({told["losses"]["160"] for told in rows}) == len(ways)
