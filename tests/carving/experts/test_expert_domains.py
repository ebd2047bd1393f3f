"""Statistics by domain: kept apart, added up, and the choice where it keeps the least."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from carvings import carve, rebuild
from saved_mixtures import mixture
from tiny import word_tokenizer

from zerolm.carving.experts.expert_selection import ExpertSelection
from zerolm.carving.experts.stock_mixture import StockMixture
from zerolm.carving.request import Methods
from zerolm.checkpoints import Checkpoint
from zerolm.planning.part_costs import StoredCosts
from zerolm.planning.size_request import ExpertsRequest, SizeRequest
from zerolm.progress import silent
from zerolm.settings.compute import ComputeRequest

FILE = "model.safetensors"
FLAGS: dict[str, Any] = {"keep_experts": "4", "sequences": 10, "length": 12}


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """A mixture with a tokenizer, and two texts of other words."""
    folder = mixture(tmp_path / "parent", "deepseek_v3")
    word_tokenizer(folder)
    (tmp_path / "a.txt").write_text(" ".join(f"w{n % 9}" for n in range(400)))
    (tmp_path / "b").mkdir()
    for part in range(2):
        (tmp_path / "b" / f"{part}.txt").write_text(" ".join(f"w{20 + n % 11}" for n in range(200)))
    return folder


def carving(parent: Path, text: str, domains: str = "mean", criterion: str = "reap") -> ExpertSelection:
    size = SizeRequest(experts=ExpertsRequest("4", domains=domains))
    methods = Methods(criterion=criterion, text=text, sequences=10, length=12)
    stock = StockMixture(Checkpoint.open(parent), SizeRequest(), StoredCosts(), silent)
    return ExpertSelection(stock, size, methods, ComputeRequest(), silent)


def test_sums_of_domains_are_kept_apart_and_add_up(parent: Path, tmp_path: Path) -> None:
    a, b = (carving(parent, text).use for text in (f"{tmp_path}/a.txt", f"other={tmp_path}/b"))
    both = carving(parent, f"a={tmp_path}/a.txt,b={tmp_path}/b")
    assert list(both.uses) == ["a", "b"]
    for layer, sums in both.use.items():
        for name, values in sums.items():
            np.testing.assert_allclose(values, a[layer][name] + b[layer][name])
            np.testing.assert_allclose(both.uses["a"][layer][name], a[layer][name])
    assert not np.allclose(a[2]["gate"], b[2]["gate"])


def test_one_text_may_have_been_read_for_neurons_before(parent: Path, tmp_path: Path) -> None:
    both = f"a={tmp_path}/a.txt,b={tmp_path}/b"
    for experts, text in ((ExpertsRequest("4", ffn="8"), f"{tmp_path}/a.txt"), (ExpertsRequest("4"), both)):
        size, alone = SizeRequest(experts=experts), carving(parent, text)
        use = replace(alone, size=size).use
        assert all(("neurons" in sums) is (text != both) for sums in use.values())


def test_the_worst_domain_keeps_the_most_that_it_can(parent: Path, tmp_path: Path) -> None:
    text = f"a={tmp_path}/a.txt,b={tmp_path}/b"
    carved = carving(parent, text, "worst")
    sets = [list(kept) for kept in combinations(range(8), 4) if sum(expert < 4 for expert in kept) == 2]
    for layer, chosen in carved.chosen.items():
        shares = []
        for use in carved.uses.values():
            worth = use[layer]["share_norm"] / np.maximum(use[layer]["count"], 1)
            shares.append(worth / worth.sum())
        most = max(min(share[kept].sum() for share in shares) for kept in sets)
        assert min(share[chosen.kept].sum() for share in shares) == pytest.approx(most, rel=1e-5)
        assert chosen.gap == 0


def test_a_child_tells_what_stays_by_domain_and_is_built_again(parent: Path, tmp_path: Path) -> None:
    text = f"a={tmp_path}/a.txt,b={tmp_path}/b"
    carved = carve(parent, tmp_path / "child", text=text, domains="worst", repair="least-squares", **FLAGS)
    assert carved.experts is not None
    for row in carved.experts.layers:
        assert set(row.domains) == {"a", "b"}
        assert all(0 < share <= 1 for share in row.domains.values())
    recipe = tmp_path / "child" / "recipe.json"
    assert json.loads(recipe.read_text())["calibration"]["sequences"] == 10
    again = rebuild(recipe, parent, tmp_path / "again", text=text)
    assert again.note == ""
    assert (tmp_path / "again" / FILE).read_bytes() == (tmp_path / "child" / FILE).read_bytes()
    with pytest.raises(ValueError, match="the recipe was made with"):
        rebuild(recipe, parent, tmp_path / "other", text=f"{tmp_path}/a.txt")
