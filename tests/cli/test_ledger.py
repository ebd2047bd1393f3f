"""``zerolm ledger``: energies are those of the weights, and a second run reads nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import Zerolm
from repeated import check_report
from tiny import saved

import zerolm as package
from zerolm.units.energies import strongest_share
from zerolm.verbs.ledger import Watch
from zerolm.verbs.ledger_report import LedgerReport


@pytest.fixture
def cache(own_cache: Path) -> Path:
    return own_cache / "ledgers"


def test_the_table_has_a_line_for_each_layer(zerolm: Zerolm, tmp_path: Path, cache: Path) -> None:
    ran = zerolm("ledger", str(saved(tmp_path / "model", "bert")))
    assert ran.status == 0
    lines = ran.out.splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("layer "))
    assert [line.split()[0] for line in lines[head + 1 : head + 5]] == ["0", "1", "2", "all"]
    assert "one pass over the files" in ran.out
    assert str(cache) in lines[-1]


def test_progress_tells_bytes_and_passes_are_counted() -> None:
    told: list[tuple[Any, ...]] = []
    watch = Watch(1, lambda *step: told.append(step))
    watch.step("reading the weights", 5, 10)
    watch.step("reading the weights", 10, 10)
    assert (told[-1], watch.passes) == (("reading the weights", 10, 10), 1)
    cached = Watch(1, lambda *step: told.append(step))
    cached.step("reading the weights", 5, 5)
    assert cached.passes == 0


def test_no_energy_has_no_share() -> None:
    assert strongest_share(np.zeros(4), 2) is None
    assert strongest_share(np.array([1.0, 3.0]), 1) == 0.75


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
