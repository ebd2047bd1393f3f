"""The sums of one pass, whole and by domain, and criteria: against the stock model with hooks."""

import json
import weakref
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve, rebuild
from safetensors.torch import load_file
from saved_mixtures import mixture, sums_by_hooks
from stopped import Stopped, stopping_at
from tiny import word_tokenizer
from torch import nn

from zerolm.carving.experts.expert_repair import repaired_experts
from zerolm.carving.experts.expert_scores import by_weights
from zerolm.carving.experts.expert_selection import ExpertSelection
from zerolm.carving.experts.expert_use import expert_use
from zerolm.carving.experts.fewer_experts import FewerExperts, expert_layers
from zerolm.carving.experts.stock_mixture import StockMixture
from zerolm.carving.request import Methods
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.io.cache import ArrayCache
from zerolm.networks.compute import Compute
from zerolm.networks.opener import mapped_model
from zerolm.planning.part_costs import StoredCosts
from zerolm.planning.size_request import ExpertsRequest, SizeRequest
from zerolm.progress import silent
from zerolm.settings.compute import ComputeRequest
from zerolm.text.tokens import Tokens

ROUTERS = {
    "qwen3_moe": "softmax", "mixtral": "renormalised", "granitemoe": "top-k first", "phimoe": "sparse mixer",
    "deepseek_v3": "sigmoid, a bias and groups", "deepseek_v2": "groups", "ernie4_5_moe": "a bias of [1, e]",
    "gemma4_text": "a scale of each expert", "gpt_oss": "biases of experts",
    "qwen2_moe": "gates as they are", "olmoe": "softmax of all",
}  # fmt: skip


def tokens() -> Tokens:
    return Tokens(torch.randint(64, (12, 12), generator=torch.Generator().manual_seed(0)), seed=0)


@pytest.mark.parametrize("kind", ROUTERS)
def test_sums_are_those_of_stock_hooks(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of neurons a few tokens at a time."""
    monkeypatch.setattr("zerolm.carving.experts.expert_use.AT_ONCE", 200)
    folder, text = mixture(tmp_path / "parent", kind), tokens()
    checkpoint = Checkpoint.open(folder)
    use = expert_use(checkpoint, mapped_model(checkpoint), text, neurons=True)
    twin = sums_by_hooks(folder, text.ids)
    assert use.keys() == twin.keys()
    for layer, sums in use.items():
        assert sums.keys() == twin[layer].keys()
        for name, values in sums.items():
            wanted = twin[layer][name].numpy()
            np.testing.assert_allclose(values, wanted, rtol=1e-5, atol=1e-8 * wanted.max(), err_msg=name)


def test_a_run_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    folder, text = mixture(tmp_path / "parent", "mixtral"), tokens()
    checkpoint, cache = Checkpoint.open(folder), ArrayCache(tmp_path / "cache")
    model = mapped_model(checkpoint)
    whole = expert_use(checkpoint, model, text)

    with pytest.raises(Stopped):
        expert_use(checkpoint, model, text, cache=cache, progress=stopping_at(2))
    steps: list[int] = []
    again = expert_use(
        checkpoint, model, text, cache=cache, progress=lambda words, step=0, of=0: steps.append(step)
    )
    assert steps == [2, 3]
    for layer, sums in whole.items():
        for name, values in sums.items():
            np.testing.assert_allclose(again[layer][name], values, rtol=1e-6)
    model.forward = None  # type: ignore[assignment, method-assign]
    assert expert_use(checkpoint, model, text, cache=cache).keys() == whole.keys()


def used(fewer: FewerExperts, model: Any) -> None:
    expert_use(fewer.parent, model, tokens())


def repaired(fewer: FewerExperts, model: Any) -> None:
    repaired_experts(fewer, model, tokens())


@pytest.mark.parametrize("work", [used, repaired])
def test_one_layer_is_in_memory_at_a_time(
    work: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a layer is put together, nobody holds another one any more."""
    checkpoint = Checkpoint.open(mixture(tmp_path / "parent", "qwen3_moe"))
    fewer = FewerExperts(checkpoint, {layer: np.arange(4) for layer in expert_layers(checkpoint)})
    alone, held = Compute.placed, list[tuple[nn.Module, weakref.ref[nn.Module]]]()

    def placed(compute: Compute, module: nn.Module, *others: Any, **more: Any) -> nn.Module:
        assert [layer for layer, part in held if layer is not module and part() is not None] == []
        whole = alone(compute, module, *others, **more)
        if whole is not module:
            held.extend((module, weakref.ref(part)) for part in whole.modules())
        return whole

    monkeypatch.setattr(Compute, "placed", placed)
    work(fewer, mapped_model(checkpoint))
    assert len({id(layer) for layer, _ in held}) == len(fewer.by_layer) > 1


@pytest.mark.parametrize("kind", ["qwen3_moe", "gpt_oss"])
def test_by_weights_alone_experts_are_ranked_by_how_evenly_they_are_spread(kind: str, tmp_path: Path) -> None:
    folder = mixture(tmp_path / "parent", kind)
    stored, checkpoint = load_file(folder / "model.safetensors"), Checkpoint.open(folder)
    place = "model.layers.2.mlp.experts"
    for expert, worth in enumerate(by_weights(checkpoint, 2, ledger_of(checkpoint))):
        if kind == "gpt_oss":
            both = [stored[f"{place}.{role}_proj"][expert] for role in ("gate_up", "down")]
        else:
            both = [stored[f"{place}.{expert}.{role}_proj.weight"] for role in ("gate", "up", "down")]
        weights = torch.cat([matrix.reshape(-1) for matrix in both]).double()
        assert np.isclose(worth, -float(weights.abs().mean() / weights.square().mean().sqrt()))


def test_gates_that_scale_what_experts_read_are_refused(tmp_path: Path) -> None:
    folder = mixture(tmp_path / "parent", "llama4_text")
    with pytest.raises(ValueError, match="--criterion aimer, which uses weights alone"):
        carve(folder, tmp_path / "child", keep_experts="4", text="random", sequences=4, length=12)
    assert not (tmp_path / "child").exists()


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


def test_the_worst_domain_keeps_the_most_that_it_can(parent: Path, tmp_path: Path) -> None:
    carved = carving(parent, f"a={tmp_path}/a.txt,b={tmp_path}/b", "worst")
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
    for row in carved.experts.layers:
        assert set(row.domains) == {"a", "b"}
        assert all(0 < share <= 1 for share in row.domains.values())
    recipe = tmp_path / "child" / "recipe.json"
    assert json.loads(recipe.read_text())["calibration"]["sequences"] == 10
    assert rebuild(recipe, parent, tmp_path / "again", text=text).notes == []
    assert (tmp_path / "again" / FILE).read_bytes() == (tmp_path / "child" / FILE).read_bytes()
    with pytest.raises(ValueError, match="the recipe was made with"):
        rebuild(recipe, parent, tmp_path / "other", text=f"{tmp_path}/a.txt")
