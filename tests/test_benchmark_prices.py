"""``benchmarks/prices.py``: the page is printed from what was measured, and says what was not."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
pytest.importorskip("transformers")
import prices_runs
from carved.parent import Texts
from parts import Parts
from prices_page import compared, page
from prices_runs import REMOVED, Parent, Scale, Shape
from tiny import saved

SHAPE = Shape(((4, 64), REMOVED, (2, 48)), 96, False)


def plans(*losses: float) -> dict[str, dict[str, object]]:
    """Return the plans of one budget in as many ways as there are losses."""
    ways = ("prices", "measured", "grid")
    return {
        f"plan 0.8x of params, {way}": {
            "shape": asdict(SHAPE),
            "finalists": 4,
            "tried": 9,
            "repaired": 5,
            "seconds": 1.0,
            "kl": loss,
        }
        for way, loss in zip(ways, losses, strict=False)
    }


def test_plans_by_prices_are_compared_with_the_better_of_the_others() -> None:
    assert compared(plans(0.3, 0.4, 0.2)) == [("0.8x of params", pytest.approx(1.5))]
    assert compared(plans(0.3, 0.4)) == [("0.8x of params", pytest.approx(0.75))]
    assert compared(plans(0.3)) == []


def test_the_page_says_what_was_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"depth": 3, "hidden": 128, "kv_heads": 4, "ffn": 64, "params": 3_000_000}
    parts = {f"small: {name}": part for name, part in {"sizes": sizes, **plans(0.3, 0.4)}.items()}
    page(parts, [*parts, "small: plan 0.8x of params, grid"], ["small"], Scale())
    text = capsys.readouterr().out
    assert "Not measured so far: small: plan 0.8x of params, grid." in text
    assert f"| 0.8x of params | {SHAPE} | 0.3000 | {SHAPE} | 0.4000 | - | - | 0.750 |" in text


def test_a_plan_is_measured_as_carve_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices_runs, "LENGTH", 16)
    sources, parts = Texts(Path("random"), Path("random")), Parts(tmp_path / "parts.jsonl")
    scale = Scale(calibrated=8, judged=4, fitted=4, glanced=2, joint=1)
    parent = Parent(saved(tmp_path / "small", "qwen2_tied"), sources, scale, parts)
    plan = parent.plan("params", "0.8x", "prices")
    assert plan["predicted"] > 0.0
    assert plan["kl"] == parts.every()[f"small: child {Shape.read(plan['shape'])}"]["kl"] > 0.0
    joint = parent.joint_cut(0)
    assert all(joint[name] > 0.0 for name in ("prices", "measured", "repaired", "calibrated", "after"))
