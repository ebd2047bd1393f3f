"""Results: small where they are shown, the same when they are saved, loaded and repeated."""

import json
import shutil
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from labelled import labelled
from refusals import Zerolm
from repeated import check_report, check_small

import zerolm
from zerolm.groundtruth.labels import benchmark_of, read_labels
from zerolm.show.page import table_of
from zerolm.show.text import clipped
from zerolm.spaces import make_space
from zerolm.spaces.document import to_document
from zerolm.verbs.report import Report

SEARCH: dict[str, Any] = {"hidden": "128,192", "depth": "2:4", "top": 3}
EVIL = "<script>alert(1)</script>"


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    file = tmp_path / "labels.json"
    file.write_text(json.dumps(benchmark_of(labelled("gpt2", 14))))
    return file


@pytest.fixture
def architecture(tmp_path: Path) -> Path:
    file = tmp_path / "architecture.json"
    shape = labelled("gpt2", 14).pool.architectures[3]
    file.write_text(json.dumps(to_document(make_space("gpt2"), shape)))
    return file


MAKERS: dict[str, Callable[[Path, Path], Report]] = {
    "search": lambda labels, file: zerolm.search("bert", max_params="9M", **SEARCH),
    "search with labels": lambda labels, file: zerolm.search(
        "gpt2", labels=labels, depth="2", hidden="128,192", ffn="320,512", heads="2"
    ),
    "search by a calibration": lambda labels, file: zerolm.search(
        "gpt2", calibration=zerolm.calibrate(labels, method="dictionary"), max_params="60M", depth="2"
    ),
    "score": lambda labels, file: zerolm.score(file, score=["geo", "zerolm"], alpha=[0.5, 1], bits=4),
    "score of a document": lambda labels, file: zerolm.score(json.loads(file.read_text())),
    "score by a calibration": lambda labels, file: zerolm.score(
        file, calibration=zerolm.calibrate(labels, method="gp")
    ),
    "calibrate": lambda labels, file: zerolm.calibrate(read_labels(labels), method="dictionary", seed=3),
    "bench": lambda labels, file: zerolm.bench.run(labels, alpha=[0.5, 1.0, 2.0]),
    "ablate": lambda labels, file: zerolm.lab.ablate([labels]),
}  # fmt: skip


@pytest.fixture(params=MAKERS)
def report(request: pytest.FixtureRequest, labels: Path, architecture: Path) -> Report:
    return MAKERS[request.param](labels, architecture)


def test_a_result_is_small_saves_loads_and_repeats(
    report: Report, tmp_path: Path, zerolm: Zerolm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path.parent)
    check_report(report, zerolm, tmp_path / "out")
    report.save(tmp_path / "out", force=True)


ODD: tuple[list[Any], list[Any]] = (
    [EVIL * 40, [EVIL], -3, None], [None, EVIL * 40, -1, [], {"a": [EVIL]}, 1e400]
)  # fmt: skip


def spoilt(document: Any, depth: int = 1) -> Iterator[Any]:
    """Yield documents with one value anywhere in their first levels replaced by something else."""
    places: Any = document if isinstance(document, dict) else range(min(len(document), 1 + 2 * depth))
    for place in places:
        value, others = document[place], list(ODD[depth])
        if depth and isinstance(value, dict | list):
            others += spoilt(value, depth - 1)
        for other in others:
            changed = copy(document)
            changed[place] = other
            yield changed


@pytest.mark.parametrize("name", ["score", "calibrate", "ablate", "bench"])
def test_spoilt_results_do_no_harm(name: str, labels: Path, architecture: Path, tmp_path: Path) -> None:
    """What a stranger may have written is shown escaped and short, or refused in one line."""
    out = tmp_path / "out"
    MAKERS[name](labels, architecture).save(out)
    document = json.loads((out / "result.json").read_text())
    messages = []
    for changed in spoilt(document):
        (out / "result.json").write_text(json.dumps(changed))
        try:
            check_small(zerolm.load(out))
        except ValueError as error:
            messages.append(str(error))
    assert len(messages) > 5
    assert not [text for text in messages if "\n" in text or len(text) > 2000]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "no run.yaml"), ("command: nothing\n", "'nothing'"), ("command: bench ls\n", "writes none"),
        ("[]", "mapping"), ("command: score\n", "cannot be read"), ("command: [score]\n", "no result"),
    ],
)  # fmt: skip
def test_what_is_no_result_is_not_loaded(text: str | None, words: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ValueError, match=words):
        zerolm.load(tmp_path)


def test_a_result_of_another_command_is_refused(labels: Path, architecture: Path, tmp_path: Path) -> None:
    MAKERS["score"](labels, architecture).save(tmp_path / "out")
    with pytest.raises(ValueError, match="of score, not of search"):
        type(zerolm.search("bert", **SEARCH)).load(tmp_path / "out")


def test_listings(data_folder: Path) -> None:
    for listing in (
        zerolm.list_spaces(),
        zerolm.list_spaces("llama"),
        zerolm.bench.ls(),
        zerolm.bench.ls(data=data_folder),
    ):
        check_small(listing)
        assert json.loads(json.dumps(listing.to_json()))
        assert len(listing.to_pandas()) == len(listing.rows()) > 0
    assert {row["name"] for row in zerolm.list_spaces().rows()} >= {"llama", "gpt2"}


def test_a_long_result_stays_short_and_says_what_it_leaves_out() -> None:
    for lines in (["x" * 5000] * 3, [str(i) for i in range(1000)], ["y" * 200] * 14, ["z"] * 15):
        text = clipped(lines)
        assert len(text) <= 1500
        assert text.count("\n") < 15
        shown = sum(not line.startswith("... and") for line in text.split("\n"))
        left = int(text.rsplit("... and ", 1)[1].split()[0].replace(",", "")) if "... and" in text else 0
        assert shown + left == len(lines)
    html = table_of([{f"{EVIL}{i}": EVIL * 100 for i in range(50)}] * 5000)
    assert len(html) < 60_000
    assert "<script" not in html


def test_moved_configurations_find_what_lies_beside(labels: Path, tmp_path: Path, zerolm: Zerolm) -> None:
    report = MAKERS["calibrate"](labels, labels)
    report.save(tmp_path / "out")
    shutil.move(tmp_path / "out", tmp_path / "moved")
    labels.unlink()
    ran = zerolm("calibrate", "--config", str(tmp_path / "moved" / "run.yaml"), "--json")
    assert json.loads(ran.out) == json.loads(json.dumps(report.to_json()))
