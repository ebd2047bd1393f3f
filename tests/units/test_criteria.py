"""Criteria are found by name, those of plug-ins too."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import saved

from zerolm.registry import Entry, Registry
from zerolm.units.importance import criteria
from zerolm.units.importance.criterion import Additive


class Point:
    """An entry point of an installed package."""

    name, value = "last", "plugin:last"

    def load(self) -> None:
        def last(parts: Any, seed: int) -> Additive:
            worth = {kind: [np.arange(len(x[0].squares), dtype=float) for x in parts[kind]] for kind in parts}
            return Additive(worth)

        criteria.CRITERIA.add(Entry("last", last, "a plug-in"))


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    registry: Registry[Any] = criteria.CRITERIA
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    monkeypatch.setattr(registry, "_is_loaded", False)
    found = importlib.metadata.entry_points
    monkeypatch.setattr(
        "zerolm.registry.entry_points",
        lambda group: [Point()] if group == "zerolm.criteria" else found(group=group),
    )


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("more", [(), ("--text", "random", "--sequences", "4", "--length", "8")])
def test_a_criterion_of_a_plugin(
    more: tuple[str, ...], zerolm: Callable[..., Any], tmp_path: Path, own_cache: Path
) -> None:
    parent, out = saved(tmp_path / "parent", "llama"), tmp_path / "child"
    ran = zerolm("carve", str(parent), "--keep-ffn", "0.5", "--criterion", "last", *more, "--out", str(out))
    assert ran.status == 0, ran.err
    recipe = json.loads((out / "recipe.json").read_text())
    assert recipe["criterion"] == "last"
    assert recipe["layers"][0]["ffn"] == list(range(20, 40))
    again = ("--recipe", str(out / "recipe.json"), "--out", str(tmp_path / "again"))
    assert zerolm("carve", str(parent), *again).status == 0
    left = {file.relative_to(own_cache).parts[0] for file in own_cache.rglob("*.npz")}
    assert left <= {"ledgers", "fingerprints"}, "what a finished repair needed is forgotten"


def test_an_unknown_criterion_gets_the_nearest(zerolm: Callable[..., Any], tmp_path: Path) -> None:
    parent = saved(tmp_path / "parent", "llama")
    ran = zerolm("carve", str(parent), "--keep-ffn", "0.5", "--criterion", "capacty")
    assert (ran.status, ran.out) == (2, "")
    assert "did you mean 'capacity'?" in ran.err


def test_all_criteria_say_where_they_come_from() -> None:
    assert {entry.name for entry in criteria.BUILT_IN} == {*criteria.WEIGHTS_ONLY, *criteria.WITH_TOKENS}
    assert all(entry.source for entry in criteria.BUILT_IN)
    assert not [name for name in criteria.WEIGHTS_ONLY if criteria.needs_tokens(name)]
    assert all(map(criteria.needs_tokens, criteria.WITH_TOKENS))
