"""``benchmarks/bits.md`` is what is stored of its measurements, and a page says what was not measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
pytest.importorskip("torch")
from bits_page import page
from parts import Parts

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RESULTS = BENCHMARKS / "bits" / "parts.jsonl"
OF_A_RUN = ("Written by ", "Not measured so far")


@pytest.fixture(autouse=True)
def versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package has to be installed to print a page."""
    monkeypatch.setattr("bits_page.version", lambda name: "1")
    monkeypatch.setattr("bits_page.machine", lambda: "a machine")


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith(OF_A_RUN)]


def test_the_page_is_what_is_stored(capsys: pytest.CaptureFixture[str]) -> None:
    page(Parts(RESULTS).every(), [])
    written = (BENCHMARKS / "bits.md").read_text(encoding="utf-8")
    assert lines_of(capsys.readouterr().out) == lines_of(written)


def test_what_was_not_measured_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    parts = {"pyenc: sizes": Parts(RESULTS).stored("pyenc: sizes")}
    page(parts, ["pyenc: sizes", "pyenc: plain"])
    assert "Not measured so far: pyenc: plain." in capsys.readouterr().out


def test_plans_lose_less_than_a_type_or_a_mix_of_as_many_bytes() -> None:
    """Of every model, and of an encoder in llama.cpp too; never more than a tenth of it more."""
    compared = [part for part in Parts(RESULTS).every().values() if part.get("alone") and part.get("bytes")]
    assert len(compared) >= 20
    for part in compared:
        assert part["alone"]["bytes"] <= part["bytes"]
        for loss in {"kl", "sent"} & part.keys():
            assert part["alone"][loss] <= 1.1 * part[loss]
