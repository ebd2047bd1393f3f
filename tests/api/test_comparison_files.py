"""The tables of a comparison as files: every number that it holds, whatever its names."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_comparison import decoder_file, encoder_file, results, written
from zerolm.api.comparison_files import FILES, write_tables
from zerolm.report.rows import key_of, name_of

from zerolm.comparison.bench import bench
from zerolm.comparison.results import Comparison

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


def test_force_replaces_an_earlier_result(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    file, out = written(tmp_path, "decoders", "gpt2", results(6)), tmp_path / "out"
    run = ("bench", "run", file, "--out", str(out))
    assert zerolm(*run).status == 0
    assert sorted(path.name for path in out.iterdir()) == sorted(
        ["report.html", "result.json", "run.yaml", *FILES]
    )
    refused = zerolm(*run)
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert zerolm(*run, "--alpha", "0.3", "--force").status == 0
    assert "zerolm 0.3" in (out / "report.html").read_text()
    (out / "mine").write_text("dear")
    assert zerolm(*run, "--force").status == 2
    assert (out / "mine").read_text() == "dear"
