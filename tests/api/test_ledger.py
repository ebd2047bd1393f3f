"""``zerolm.ledger``: rows a layer that save, load and repeat themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import Zerolm
from repeated import check_report
from tiny import saved

import zerolm as package
from zerolm.verbs.ledger_report import LedgerReport


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_it_saves_loads_and_repeats(name: str, zerolm: Zerolm, tmp_path: Path) -> None:
    report = package.ledger(saved(tmp_path / "model", name))
    assert repr(report).startswith(f"{name} of 3 layers")
    check_report(report, zerolm, tmp_path / "out", ("seconds", "from_cache"))
    document = report.to_json()
    del document["layers"][1]["ffn"]["strongest_half"]
    with pytest.raises(ValueError, match=r"layers.*strongest_half"):
        LedgerReport.from_json(document)
    rows, total = report.rows(), report.total
    assert [row["layer"] for row in rows] == [0, 1, 2]
    sums = [sum(row[f"{part}_energy"] for row in rows) for part in ("attention", "ffn")]
    assert sums == pytest.approx([total.attention.energy, total.ffn.energy])
