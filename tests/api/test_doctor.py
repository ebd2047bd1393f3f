"""``zerolm.doctor``, which is ``zerolm.doctor``: a small result that saves, loads and repeats itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import Zerolm
from repeated import check_report
from tiny import saved

import zerolm as package

pytestmark = pytest.mark.usefixtures("opened_here")


def test_it_saves_loads_and_repeats(zerolm: Zerolm, tmp_path: Path) -> None:
    report = package.doctor(str(saved(tmp_path / "model", "llama")))
    assert "opens: transformers, vLLM" in repr(report)
    check_report(report, zerolm, tmp_path / "out")
    assert [row["runtime"] for row in report.rows()] == [verdict.runtime for verdict in report.runtimes]
