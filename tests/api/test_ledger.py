"""``zerolm.ledger``: rows a layer that save, load and repeat themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from repeated import check_report
from tiny import saved

import zerolm as package


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_it_saves_loads_and_repeats(
    name: str, zerolm: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / "cache"))
    report = package.ledger(saved(tmp_path / "model", name))
    assert repr(report).startswith(f"{name} of 3 layers")
    check_report(report, zerolm, tmp_path / "out", ("seconds", "from_cache"))
    pytest.importorskip("pandas")
    table = report.to_pandas()
    assert list(table["layer"]) == [0, 1, 2]
    parts = table["attention_energy"].sum(), table["ffn_energy"].sum()
    totals = report.to_json()["total"]
    assert parts == pytest.approx((totals["attention"]["energy"], totals["ffn"]["energy"]))


@pytest.mark.parametrize("given", [{"parent": 7}, {"parent": ""}, {"parent": "a", "verify": "yes"}])
def test_wrong_types(given: Any) -> None:
    with pytest.raises(ValueError, match=r"parent|verify") as told:
        package.ledger(**given)
    assert "\n" not in str(told.value)
