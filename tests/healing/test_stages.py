"""Carving and healing in one, and in stages."""

import json
from pathlib import Path
from typing import Any

import pytest
from saved_mixtures import mixture
from tiny import saved, word_tokenizer

import zerolm
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.identity import fingerprint
from zerolm.healing.rate import rate_of

TEXT = " ".join(f"w{(7 * place + place // 5) % 60}" for place in range(4000))
SHORT: dict[str, Any] = {"sequences": 6, "length": 12, "heal": 4200}


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = saved(tmp_path / "parent", "llama")
    word_tokenizer(folder)
    (tmp_path / "text.txt").write_text(TEXT)
    return folder


def recipe(folder: str) -> dict[str, Any]:
    return dict(json.loads((Path(folder) / "recipe.json").read_text()))


def test_one_stage_is_a_carved_child_that_was_healed(parent: Path) -> None:
    plain = zerolm.carve(parent, keep_ffn=0.5, text="text.txt", sequences=6, length=12)
    healed = zerolm.carve(parent, "child", keep_ffn=0.5, text="text.txt", **SHORT)
    assert (healed.widths, healed.costs["child"]) == (plain.widths, plain.costs["child"])
    assert healed.verified is not None
    assert healed.healing.training.tokens <= 4200
    assert len(recipe("child")["healing"]) == 1
    assert "text.txt" in (Path("child") / "README.md").read_text()
    assert zerolm.load("child").to_json() == healed.to_json()
    assert not [place.name for place in Path().iterdir() if "zerolm-" in place.name]


def test_stages_end_at_the_sizes_of_one_cut_and_name_the_first_parent(parent: Path) -> None:
    cut: dict[str, Any] = {"keep_ffn": 0.5, "keep_layers": 0.67, "text": "text.txt"}
    once = zerolm.carve(parent, **cut, sequences=6, length=12)
    staged = zerolm.carve(parent, "child", **cut, steps=2, **SHORT)
    assert [layer.ffn for layer in staged.widths] == [layer.ffn for layer in once.widths]
    assert staged.costs == once.costs
    gave = {row.unit: row for row in staged.units}
    costs = [staged.costs[who]["params"] for who in ("parent", "child")]
    assert sum(row.params for row in gave.values()) == costs[0] - costs[1]
    assert (gave["FFN neurons"].before, gave["FFN neurons"].after) == (40 * 2, 20 * 2)
    own = recipe("child")
    assert own["parent_weights"] == fingerprint(Checkpoint.open(parent))
    assert len(own["healing"]) == 2
    assert [entry["layer"] for entry in own["layers"]] == [layer.layer for layer in staged.widths]
    assert all(entry["ffn"] == sorted(set(entry["ffn"])) for entry in own["layers"])
    assert max(unit for entry in own["layers"] for unit in entry["ffn"]) < 40
    judged = zerolm.eval("child", parent=parent, text="text.txt", sequences=4, length=12)
    assert [row.name for row in judged.networks] == [
        "child", "parent", "random", "uniform", "quantised parent",
    ]  # fmt: skip
    again = zerolm.carve(parent, "again", recipe="child/recipe.json", text="text.txt")
    assert "before zerolm heal trained it" in again.remarks[0]


def test_stages_within_budgets_end_within_them(parent: Path) -> None:
    staged = zerolm.carve(
        parent, "child", max_params="0.8x", keep_hidden=1.0, text="text.txt", steps=2, **SHORT
    )
    assert staged.costs["child"]["params"] <= 0.8 * staged.costs["parent"]["params"]


def test_a_run_that_is_killed_in_either_stage_ends_at_the_same_child(parent: Path) -> None:
    """What the first stage has carved is not carved again."""
    cut: dict[str, Any] = {"keep_ffn": 0.5, "keep_layers": 0.67, "keep_hidden": 0.7, "text": "text.txt"}
    stages: dict[str, Any] = {**cut, "steps": 2, **SHORT}
    opened: list[str] = []

    class Killed(Exception):
        pass

    def kill_at_first(text: str, *_: int) -> None:
        if text.startswith("training"):
            raise Killed

    def kill_at_last(text: str, *_: int) -> None:
        opened.extend([text] if text.startswith("opening the child") else [])
        if len(opened) == 1:
            assert carved.stat().st_mtime_ns == before
        if len(opened) == 2:
            raise Killed

    whole = zerolm.carve(parent, "whole", **stages)
    with pytest.raises(Killed):
        zerolm.carve(parent, "child", **stages, progress=kill_at_first)
    (carved,) = Path().glob(".child.stages.zerolm-run/1/child/model.safetensors")
    before = carved.stat().st_mtime_ns
    with pytest.raises(Killed):
        zerolm.carve(parent, "child", **stages, progress=kill_at_last)
    again = zerolm.carve(parent, "child", **stages)
    assert (again.widths, again.stream, again.units) == (whole.widths, whole.stream, whole.units)
    assert recipe("child")["layers"] == recipe("whole")["layers"]
    assert fingerprint(Checkpoint.open("child")) == fingerprint(Checkpoint.open("whole"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 2, "out": "child"}, "give --heal TOKENS too"),
        ({"heal": 5000}, "give --out"),
        ({"heal": 5000, "out": "child", "text": None}, "give --text"),
        ({"heal": 5000, "out": "child", "text": "random"}, "give --text FILE, not random"),
        ({"heal": "0.5x", "out": "child"}, "not the share 0.5x"),
        ({"heal": 100, "out": "child"}, "2048 are the least"),
        ({"heal": 4000, "out": "child", "steps": 2}, "2000 tokens are less than one batch of 8 x 256"),
        (
            {"heal": 5000, "out": "child", "steps": 2, "shape": "per-layer", "format": "padded"},
            "stages cut all layers to one size",
        ),
        (
            {"heal": 5000, "out": "child", "shape": "per-layer", "max_params": "0.8x"},
            "one size for all layers: give --shape uniform",
        ),
    ],
)
def test_what_cannot_be_is_refused_at_once(parent: Path, settings: dict[str, Any], message: str) -> None:
    before = sorted(place.name for place in Path().iterdir())
    sizes = {} if "max_params" in settings else {"keep_ffn": 0.5}
    with pytest.raises(ValueError, match=message) as refused:
        zerolm.carve(parent, **{"text": "text.txt", **sizes, **settings})
    assert "\n" not in str(refused.value)
    assert sorted(place.name for place in Path().iterdir()) == before


def test_the_rate_follows_the_damage_and_the_steps() -> None:
    assert rate_of(0.245, 400, None) == pytest.approx(1e-3, rel=0.05)
    assert rate_of(0.06, 4000, None) < rate_of(0.245, 4000, None)
    assert rate_of(0.245, 100, None) == pytest.approx(rate_of(0.245, 400, None) / 2)
    assert rate_of(0.245, 400, 8) > rate_of(0.245, 400, None)
    assert rate_of(0.0, 400, None) > 0
    assert rate_of(0.245, 400, None, large=True) < rate_of(0.0, 400, None)


@pytest.mark.parametrize("healing", ["yes", 3, [1], [{}], [{"tokens": 1}], [[]] * 2000, {"teacher": "x"}])
def test_a_recipe_with_another_healing_is_refused(parent: Path, healing: Any) -> None:
    zerolm.carve(parent, "child", keep_ffn=0.5, criterion="capacity")
    (Path("child") / "recipe.json").write_text(json.dumps(recipe("child") | {"healing": healing}))
    common: dict[str, Any] = {"parent": parent, "text": "text.txt", "tokens": 2048, "out": "healed"}
    with pytest.raises(ValueError, match="healing") as refused:
        zerolm.heal("child", **common)
    assert "\n" not in str(refused.value)


def test_experts_leave_in_the_first_stage(here: Path) -> None:
    parent = mixture(here / "parent", "qwen3_moe")
    word_tokenizer(parent)
    Path("text.txt").write_text(TEXT)
    cut: dict[str, Any] = {"keep_experts": "4", "text": "text.txt", **SHORT}
    staged = zerolm.carve(parent, "child", keep_layers=0.5, steps=2, **cut)
    kept = {row["layer"]: row["kept"] for row in recipe("child")["experts"]}
    assert [len(each) for each in kept.values()] == [4, 4, 4]
    assert (staged.units[0].unit, staged.units[0].before, staged.units[0].after) == ("experts", 24, 12)
    assert Checkpoint.open("child").layout.sizes["experts"] == 4
    with pytest.raises(
        ValueError, match="experts are pruned in one step, and nothing else is cut: drop --steps 2"
    ):
        zerolm.carve(parent, "other", steps=2, **cut)
