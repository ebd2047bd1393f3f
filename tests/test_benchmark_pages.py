"""Pages of ``benchmarks/``: they are what is stored of their measurements, and what is measured is stored."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import model, saved

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
pytest.importorskip("transformers")
import bits_page
import joint_page
import prices_runs
import real_bytes
import real_page
from carved.parent import Texts
from joint_plans import KINDS, OF_EXPERTS, PLANS
from measured_cuts import measured_losses
from parts import Parts
from prices_page import compared
from prices_page import page as prices_page
from prices_runs import REMOVED, Parent, Scale, Shape

from zerolm.carving.loss import Loss
from zerolm.networks.blocks import Blocks
from zerolm.settings.request import settings_of
from zerolm.text.tokens import random_tokens
from zerolm.units.importance.criterion import FirstUnits
from zerolm.units.kept_units import Cut, LayerCut
from zerolm.units.pruning import dimensions_of
from zerolm.verbs.carve import CarveSettings

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
BITS = BENCHMARKS / "bits" / "parts.jsonl"
PRICES = Parts(BENCHMARKS / "prices" / "parts.jsonl").every()
STORED: dict[str, Callable[[], None]] = {
    "bits": lambda: bits_page.page(Parts(BITS).every(), []),
    "joint": lambda: joint_page.page(
        {file.stem: Parts(file).every() for file in sorted((BENCHMARKS / "joint").glob("*.jsonl"))}
    ),
    "real": lambda: print(real_page.page(BENCHMARKS / "real")),
    "real_bytes": lambda: real_bytes.page(real_bytes.BYTES),
    "prices": lambda: prices_page(PRICES, list(PRICES), ["pydec", "pydeep"], Scale()),
}


@pytest.fixture(autouse=True)
def versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package has to be installed to print a page."""
    monkeypatch.setattr(bits_page, "version", lambda name: "1")
    monkeypatch.setattr(bits_page, "machine", lambda: "a machine")


def lines_of(text: str) -> list[str]:
    of_a_run = ("Written by ", "`ZEROLM_REAL=", "Not measured so far")
    return [line for line in text.splitlines() if line and not line.startswith(of_a_run)]


@pytest.mark.parametrize("name", STORED)
def test_the_page_is_what_is_stored(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    STORED[name]()
    written = (BENCHMARKS / f"{name}.md").read_text(encoding="utf-8")
    assert lines_of(capsys.readouterr().out) == lines_of(written)


def test_plans_of_types_lose_less_than_a_type_or_a_mix_of_as_many_bytes() -> None:
    """Of every model, and of an encoder in llama.cpp too; never more than a tenth of it more."""
    both = [part for part in Parts(BITS).every().values() if part.get("alone") and part.get("bytes")]
    assert len(both) >= 20
    for part in both:
        assert part["alone"]["bytes"] <= part["bytes"]
        for loss in {"kl", "sent"} & part.keys():
            assert part["alone"][loss] <= 1.1 * part[loss]


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


def test_the_page_of_joint_plans_says_where_they_are_worse(capsys: pytest.CaptureFixture[str]) -> None:
    joint_page.page({"pydec": ROWS})
    text = capsys.readouterr().out
    assert "types alone: " in text
    assert "**joint is worse**" in text
    assert "joint is better" in text
    assert "| tokens alone | - | - | - | 1 | 0.4 | cannot reach: at least 0.00 MB |" in text
    assert "tokens 10 → 8; Q4_K" in text


def test_joint_plans_are_flags_of_the_command() -> None:
    known = {item.flag for item in settings_of(CarveSettings)}
    flags = {word for plan in (*PLANS, *OF_EXPERTS) for word in plan.flags if word.startswith("--")}
    assert flags <= known
    assert {f"--keep-{flag}" for flag in KINDS.values()} <= known


FEW = np.arange(20)
SHAPE = Shape(((4, 64), REMOVED, (2, 48)), 96, False)


def plans(*losses: float) -> dict[str, dict[str, object]]:
    how = {"shape": asdict(SHAPE), "finalists": 4, "tried": 9, "repaired": 5, "seconds": 1.0}
    pairs = zip(("prices", "grid"), losses, strict=False)
    return {f"plan 0.8x of params, {way}": {**how, "kl": loss} for way, loss in pairs}


def test_plans_by_prices_are_compared_with_the_best_of_a_grid() -> None:
    assert compared(plans(0.3, 0.2)) == [("0.8x of params", pytest.approx(1.5))]
    assert compared(plans(0.3)) == []


def test_the_page_says_what_was_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"depth": 3, "hidden": 128, "kv_heads": 4, "ffn": 64, "params": 3_000_000}
    parts = {f"small: {name}": part for name, part in {"sizes": sizes, **plans(0.3)}.items()}
    prices_page(parts, [*parts, "small: plan 0.8x of params, grid"], ["small"], Scale())
    text = capsys.readouterr().out
    assert "Not measured so far: small: plan 0.8x of params, grid." in text
    assert f"| 0.8x of params | {SHAPE} | 0.3000 | - | - | - |" in text


def test_a_plan_is_measured_as_carve_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices_runs, "LENGTH", 16)
    sources, parts = Texts(Path("random"), Path("random")), Parts(tmp_path / "parts.jsonl")
    scale = Scale(calibrated=8, judged=4, fitted=4, glanced=2, joint=1)
    parent = Parent(saved(tmp_path / "small", "qwen2_tied"), sources, scale, parts)
    plan = parent.plan("params", "0.8x")
    assert plan["predicted"] > 0.0
    assert plan["kl"] == parts.every()[f"small: child {Shape.read(plan['shape'])}"]["kl"] > 0.0
    joint = parent.joint_cut(0)
    assert all(joint[name] > 0.0 for name in ("prices", "measured", "repaired", "calibrated", "after"))


def test_a_measured_table_has_the_losses_of_single_cuts() -> None:
    network, tokens = model("llama"), random_tokens(64, 8, 12)
    whole = Cut.whole(dimensions_of(network))
    table = measured_losses(network, tokens, FirstUnits(None), ("groups", "ffn"))
    loss, (first, *others) = Loss(Blocks(network, tokens.batches(4))), whole.layers
    fewer_groups, half = (LayerCut(0, {**first.kept, **kept}) for kept in ({"groups": FEW[:1]}, {"ffn": FEW}))
    for layers in ([fewer_groups, *others], [half, *others], others):
        cut = Cut(whole.parent, tuple(layers))
        assert 0.0 < table.predicted(cut) == pytest.approx(loss.of_cut(cut), rel=1e-4)


def test_a_part_is_measured_once_also_where_its_line_was_cut_off(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "made" / "kind.jsonl")
    assert parts.stored("a") is None
    for name, result in (("a", {"losses": [1, 2]}), ("none", None), ("b", 0)):
        assert [parts.measured(name, lambda n=n: n) for n in (result, "another")] == [result] * 2
    parts.file.write_text(parts.file.read_text()[:-4])
    assert parts.every() == {"a": {"losses": [1, 2]}, "none": None}
    assert [parts.measured("b", lambda n=n: n) for n in (5, 6)] == [5, 5]
    assert Parts(parts.file).every() == {"a": {"losses": [1, 2]}, "none": None, "b": 5}
