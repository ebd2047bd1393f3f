"""The tables of a comparison as files: every number that it holds, whatever its names."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_comparison import decoder_file, encoder_file, results, written

from zerolm.comparison.bench import bench
from zerolm.comparison.document import from_document
from zerolm.comparison.results import Comparison
from zerolm.comparison.standings import key_of, name_of
from zerolm.verbs.bench_report import BenchReport
from zerolm.verbs.comparison_sheets import FILES, write_tables

EVIL = '<script>alert("1 & 2")</script>'


@pytest.fixture
def found(tmp_path: Path) -> Comparison:
    """Two benchmarks in four views, one of them in three."""
    return bench([encoder_file(tmp_path, 12), decoder_file(tmp_path, 10)], draws=50)


def test_rows_as_csv(found: Comparison, tmp_path: Path) -> None:
    write_tables(found, tmp_path)
    with (tmp_path / "rows.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert len(read) == len(found.rows)
    for line, row in zip(read, found.rows, strict=True):
        given = row.to_json()
        assert list(line) == list(given)
        for name, value in given.items():
            assert line[name] == ("" if value is None else str(value))
            if isinstance(value, float):
                assert float(line[name]) == value


def test_scores_as_csv(found: Comparison, tmp_path: Path) -> None:
    write_tables(found, tmp_path)
    with (tmp_path / "scores.csv").open(newline="") as file:
        read = iter(list(csv.DictReader(file)))
    for section in found.sections:
        for place, entry in enumerate(section.truth.architectures):
            line = next(read)
            assert (line["benchmark"], line["view"]) == (section.truth.name, section.view or "")
            assert (line["id"], float(line["result"])) == (entry.id, entry.results["quality"])
            for row in section.rows:
                assert float(line[name_of(key_of(row))]) == section.scores[row.label][place]
    assert next(read, None) is None


def test_hostile_ids_are_fields(tmp_path: Path) -> None:
    file = written(tmp_path, EVIL, "gpt2", results(8), metric=EVIL, prefix=EVIL)
    write_tables(bench([file], draws=20), tmp_path)
    with (tmp_path / "scores.csv").open(newline="") as lines:
        assert next(csv.DictReader(lines))["id"] == f"{EVIL}0"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[BenchReport, Path]:
    """A result, and the folder that it was written into."""
    folder = tmp_path_factory.mktemp("saved")
    report = BenchReport(bench([encoder_file(folder, 12), decoder_file(folder, 10)], draws=50))
    report.save(folder / "out")
    return report, folder / "out"


@pytest.fixture
def report(saved: tuple[BenchReport, Path], tmp_path: Path) -> BenchReport:
    report, folder = saved
    shutil.copytree(folder, tmp_path / "out")
    return report


def test_one_file_holds_all(report: BenchReport, tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / "out" / name).unlink()
    loaded = BenchReport.load(tmp_path / "out")
    loaded.save(tmp_path / "again")
    names = {"report.html", "result.json", "run.yaml", *FILES}
    assert {file.name for file in (tmp_path / "again").iterdir()} == names
    write_tables(report.comparison, tmp_path)
    for name in FILES:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / name).read_bytes()
    assert (loaded, loaded.page()) == (report, (tmp_path / "out" / "report.html").read_text())


def edited(document: dict[str, Any], place: str) -> None:
    """Edit one place of a comparison as JSON."""
    section, benchmark = document["sections"][0], document["benchmarks"][0]
    label = next(iter(section["scores"]))
    edits: dict[str, Callable[[], Any]] = {
        "a score less": lambda: section["scores"][label].pop(),
        "scores of another": lambda: section["scores"].pop(label),
        "an infinite score": lambda: section["scores"][label].__setitem__(0, float("inf")),
        "a budget less": lambda: section["regret_by_budget"][label].pop(),
        "an alpha less": lambda: section["alpha_curve"].pop(),
        "another benchmark": lambda: document["rows"][0].update(benchmark="other"),
        "a row more": lambda: document["rows"].append(document["rows"][-1]),
        "many sections": lambda: benchmark.update(sections=10**9),
        "a hidden metric": lambda: document["benchmarks"][0]["benchmark"]["architectures"][0].update(
            results={}
        ),
        "two lines": lambda: section["left_out"].update({"a\nb": "c"}),
        "a note of lines": lambda: document.update(note="a\nb"),
    }
    edits[place]()


PLACES = (
    *("a score less", "scores of another", "an infinite score", "a budget less", "an alpha less"),
    *("another benchmark", "a row more", "many sections", "a hidden metric", "two lines", "a note of lines"),
)


@pytest.mark.parametrize("place", PLACES)
def test_an_edited_comparison_is_refused(place: str, found: Comparison) -> None:
    document = json.loads(json.dumps(found.to_json()))
    assert from_document(document).to_json() == document
    edited(document, place)
    with pytest.raises(ValueError, match=r".") as caught:
        from_document(document)
    assert "\n" not in str(caught.value)
