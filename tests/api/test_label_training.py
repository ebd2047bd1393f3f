"""``zerolm.bench.train``: a result like all others, and a file that the other commands take."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from label_training import ASKED, SPACE, TRAINING, some_text
from made_pages import golden
from refusals import Zerolm
from repeated import check_report

import zerolm
from zerolm.groundtruth.reader import read, views
from zerolm.networks.build import build
from zerolm.training.train import TrainingFailed
from zerolm.verbs.bench_train import LabelsReport

NOISE = {"seeds": 3, "repeated": 2}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    some_text(folder)
    return folder


@pytest.fixture(autouse=True)
def cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROLM_CACHE", str(place / "cache"))
    monkeypatch.chdir(place)


@pytest.fixture
def report(place: Path) -> LabelsReport:
    return zerolm.bench.train("llama", text="text.txt", **ASKED, **NOISE)


def test_the_file_is_a_benchmark_with_what_was_trained(report: LabelsReport, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    again = zerolm.bench.train("llama", file, text="text.txt", **ASKED, **NOISE)
    assert again.benchmark["architectures"] == report.benchmark["architectures"]
    truth = read(file)
    assert (truth.name, truth.space, truth.metric, truth.count) == ("mine", "llama", "loss", 5)
    assert truth.higher_is_better is False
    (view,) = views(truth)
    assert view.settings["vocab"] == truth.source["vocabulary"] <= 300
    for architecture, row in zip(view.architectures, report.architectures, strict=True):
        network = build(architecture)
        assert network.params == row.params
        assert row.body_params <= 15_000
        assert network.classes == truth.source["vocabulary"]
    assert [len(entry.repeats.get("loss", ())) for entry in truth.architectures] == [2, 0, 2, 0, 0]
    assert (truth.source["noise"]["runs"], truth.source["noise"]["networks"]) == (6, 2)
    assert truth.source["tokens"] == 160
    assert sorted(truth.architectures[0].results) == [
        "loss", "loss after 128 tokens", "loss after 32 tokens", "loss after 64 tokens",
        "loss after 96 tokens",
    ]  # fmt: skip


def test_it_is_shown_saved_loaded_and_repeated(report: LabelsReport, tmp_path: Path, zerolm: Zerolm) -> None:
    check_report(report, zerolm, tmp_path / "out")
    assert report.to_json().keys() == golden("labels").to_json().keys()
    assert json.loads((tmp_path / "out" / "labels.json").read_text()) == report.benchmark


def test_more_are_trained_beside_those_that_are_kept(
    report: LabelsReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zerolm.training import labels

    trained = []
    train = labels.train
    monkeypatch.setattr(labels, "train", lambda *given, **more: trained.append(1) or train(*given, **more))
    more = zerolm.bench.train("llama", text="text.txt", **ASKED | {"count": 7})
    assert len(trained) == 2
    assert more.architectures[0].loss == report.architectures[0].loss


def test_the_rows_of_a_file_are_trained(report: LabelsReport, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(report.benchmark))
    same = zerolm.bench.train(rows=file, text="text.txt", **TRAINING)
    assert [row.loss for row in same.architectures] == [row.loss for row in report.architectures]
    two = zerolm.bench.train("llama", rows=file, text="text.txt", count=2, **TRAINING)
    assert len(two.architectures) == 2


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no space": ({}, "no space is named"),
    "images": ({"space": "pit"}, "'pit' read images"),
    "a text that is short": ({"space": "llama", "text": "short.txt"}, "are the least for sequences of 16"),
    "no text": ({"space": "llama", "text": "nowhere.txt"}, "does not exist"),
    "a setting of nobody": ({"space": "llama", "wideness": 3}, "wideness"),
    "a vocabulary below the bytes": ({"space": "llama", "vocab": 200}, "257 is the least"),
    "too few that small": ({"space": "llama", "max_params": 10}, "allow more"),
    "rows of another space": ({"space": "bert", "rows": "rows.json"}, "are of space 'llama', not of 'bert'"),
    "budgets of rows": ({"rows": "rows.json", "max_params": "1M"}, "max_params is for sampled architectures"),
    "more positions than known": ({"space": "gpt2", "length": 256, "tokens": 512}, "positions for 192"),
    "less than a batch": ({"space": "llama", "tokens": 10}, "one batch of 2 x 16; 32 are the least"),
    "ray with jobs": ({"space": "llama", "jobs": 2, "backend": "ray"}, "jobs 2 are for loky"),
}


@pytest.mark.parametrize(("given", "words"), WRONG.values(), ids=WRONG)
def test_wrong_input(given: dict[str, Any], words: str, report: LabelsReport, place: Path) -> None:
    (place / "rows.json").write_text(json.dumps(report.benchmark))
    (place / "short.txt").write_text("a few words")
    before = sorted(path.name for path in place.iterdir())
    llama = SPACE if given.get("space") == "llama" else {}
    with pytest.raises(ValueError, match=words) as caught:
        zerolm.bench.train(**{"text": "text.txt", "count": 2, **TRAINING, **llama, **given})
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in place.iterdir()) == before


def test_what_cannot_be_trained_is_left_out_or_fails(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    from zerolm.training import labels

    train, calls = labels.train, []

    def failing(*given: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) in (2, 4, 5, 6):
            raise TrainingFailed("the loss is nan at step 3")
        return train(*given, **more)

    monkeypatch.setattr(labels, "train", failing)
    asked = ASKED | {"count": 3, "tokens": 192}
    report = zerolm.bench.train("llama", text="text.txt", **asked)
    assert [row.id for row in report.architectures] == ["1", "3"]
    assert report.remarks == ["left out: architecture 2: the loss is nan at step 3"]
    assert "the loss is nan at step 3" in report.page()
    with pytest.raises(
        TrainingFailed, match="3 of 3 architectures could not be trained, the first: the loss"
    ):
        zerolm.bench.train("llama", text="text.txt", **asked | {"rate": 0.02})
    assert not (place / "mine.json").exists()


def test_losses_above_those_of_chance_are_told(report: LabelsReport) -> None:
    """Steps that are too large diverge to finite losses; training as usual says nothing."""
    uniform = math.log(report.benchmark["source"]["vocabulary"])
    assert not report.remarks
    hot = zerolm.bench.train("llama", text="text.txt", **ASKED | {"rate": 50})
    worse = sum(row.loss > uniform for row in hot.architectures)
    assert worse
    (told,) = hot.remarks
    assert told.startswith(f"{worse} of 5 architectures end above {uniform:.4f}, the loss of a uniform")
