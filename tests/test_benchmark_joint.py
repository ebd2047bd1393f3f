"""``benchmarks/joint.md`` is what is stored of its measurements, and says where the joint plan is worse."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
pytest.importorskip("transformers")
from joint_page import page
from joint_plans import KINDS, OF_EXPERTS, PLANS
from parts import Parts

from zerolm.settings.request import settings_of
from zerolm.verbs.carve import CarveSettings

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def child(*nats: float, types: bool = True) -> dict[str, Any]:
    """Return the row of a child that was judged on stretches of 100 bytes."""
    return {
        "bytes_of_stretches": [100] * len(nats), "nats": list(nats), "bits": sum(nats) / len(nats) / 69.3,
        "kl": 0.1, "bytes": 1_000, "seconds": 2.0, "gb": 0.5, "from_nothing": True,
        "units": {"tokens": [10, 8], "layers": [2, 2]}, "types": {"Q4_K": 3} if types else {},
    }  # fmt: skip


ROWS: dict[str, Any] = {
    "sizes": {"bytes": 4_000, "sequences": 32},
    "parent": child(100, 110, 120),
    "0.25 joint": child(130, 140, 151),
    "0.25 types alone": child(120, 131, 140),
    "0.25 cuts alone": child(190, 200, 230),
    "0.25 types and cuts": child(150, 160, 172),
    "0.25 tokens alone": {
        "refused": "the budget is below the least: at least 3,600 bytes", "seconds": 1.0, "gb": 0.4,
        "from_nothing": True,
    },
}  # fmt: skip


def test_the_page_says_where_the_joint_plan_is_worse(capsys: pytest.CaptureFixture[str]) -> None:
    page({"pydec": ROWS})
    text = capsys.readouterr().out
    assert "types alone: " in text
    assert "**joint is worse**" in text
    assert "joint is better" in text
    assert "| tokens alone | - | - | - | 1 | 0.4 | cannot reach: at least 0.00 MB |" in text
    assert "tokens 10 → 8; Q4_K" in text


def test_plans_are_flags_of_the_command() -> None:
    known = {item.flag for item in settings_of(CarveSettings)}
    flags = {word for plan in (*PLANS, *OF_EXPERTS) for word in plan.flags if word.startswith("--")}
    assert flags <= known
    assert {f"--keep-{flag}" for flag in KINDS.values()} <= known


def test_the_page_is_what_is_stored(capsys: pytest.CaptureFixture[str]) -> None:
    page({file.stem: Parts(file).every() for file in sorted((BENCHMARKS / "joint").glob("*.jsonl"))})
    written = (BENCHMARKS / "joint.md").read_text(encoding="utf-8")

    def lines(text: str) -> list[str]:
        return [line for line in text.splitlines() if line and not line.startswith("Written by ")]

    assert lines(capsys.readouterr().out) == lines(written)
