"""``zerolm.doctor``, which is ``zerolm.doctor``: a small result that saves, loads and repeats itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from repeated import check_report
from tiny import saved

import zerolm as package
from zerolm.verbs.doctor import DoctorReport

pytestmark = pytest.mark.usefixtures("opened_here")


def test_it_saves_loads_and_repeats(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    report = package.doctor(str(saved(tmp_path / "model", "llama")))
    assert "opens: transformers, vLLM" in repr(report)
    check_report(report, zerolm, tmp_path / "out")
    pytest.importorskip("pandas")
    table = report.to_pandas()
    assert list(table["runtime"]) == [verdict.runtime for verdict in report.runtimes]


def test_a_folder_of_the_command(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    folder, out = saved(tmp_path / "model", "bert"), tmp_path / "out"
    assert zerolm("doctor", str(folder), "--out", str(out)).status == 0
    assert package.doctor(folder) == DoctorReport.load(out)
    assert sorted(file.name for file in out.iterdir()) == ["report.html", "result.json", "run.yaml"]
    assert zerolm("doctor", str(folder), "--out", str(out)).status == 2
    assert zerolm("doctor", str(folder), "--out", str(out), "--force").status == 0
