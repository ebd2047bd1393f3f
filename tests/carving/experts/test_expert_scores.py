"""The sums of one pass, the worth of experts and of their neurons, and the choice of both, by plain twins."""

import json
import weakref
from collections.abc import Callable
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from carvings import carve, rebuild
from hypothesis import given, settings
from hypothesis import strategies as some
from hypothesis import strategies as st
from safetensors.torch import load_file
from saved_mixtures import mixture, sums_by_hooks
from stopped import Stopped, stopping_at
from tiny import word_tokenizer
from torch import nn

from zerolm.carving.experts.expert_count import (
    TRIED,
    best_by_pairs,
    best_experts,
    best_of_rows,
    least_lost,
    tried_of,
)
from zerolm.carving.experts.expert_repair import repaired_experts
from zerolm.carving.experts.expert_scores import by_weights, losses_of_neurons, neurons_by_weights
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
from zerolm.planning.sizes import costs_of
from zerolm.progress import silent
from zerolm.settings.compute import ComputeRequest
from zerolm.text.calibration import tokens_of
from zerolm.text.tokens import Tokens

FILE = "model.safetensors"


def tokens() -> Tokens:
    return Tokens(torch.randint(64, (12, 12), generator=torch.Generator().manual_seed(0)), seed=0)


def test_sums_that_were_kept_without_neurons_are_not_taken_for_those_with_them(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(mixture(tmp_path / "parent", "mixtral"))
    cache, model = ArrayCache(tmp_path / "cache"), mapped_model(checkpoint)
    plain = expert_use(checkpoint, model, tokens(), cache=cache)
    assert all("neurons" not in sums for sums in plain.values())
    more = expert_use(checkpoint, model, tokens(), neurons=True, cache=cache)
    model.forward = None  # type: ignore[assignment, method-assign]
    for neurons in (True, False):  # both from the cache now
        again = expert_use(checkpoint, model, tokens(), neurons=neurons, cache=cache)
        for layer, sums in again.items():
            np.testing.assert_array_equal(sums["neurons"], more[layer]["neurons"])
            for name, values in plain[layer].items():
                np.testing.assert_allclose(sums[name], values, rtol=1e-6)


def test_the_neurons_of_most_worth_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each expert its own, by the sums of the pass over the text."""
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / "cache"))
    folder = mixture(tmp_path / "parent", "qwen3_moe")
    text: dict[str, Any] = {"text": "random", "sequences": 6, "length": 12}
    flags: dict[str, Any] = {"criterion": "hope_moments", **text}
    carved = carve(folder, tmp_path / "child", keep_experts="4", keep_expert_ffn="16", **flags)
    twin = sums_by_hooks(folder, tokens_of(Checkpoint.open(folder), **text).divided().fitted.ids)
    recipe = json.loads((tmp_path / "child" / "recipe.json").read_text())
    for row, told in zip(recipe["experts"], carved.experts.layers, strict=True):
        gone = 0.0
        for expert, digits in zip(row["kept"], row["neurons"], strict=True):
            worth = twin[row["layer"]]["neurons"][expert].numpy()
            stays = np.array([bit == "1" for bit in f"{int(digits, 16):024b}"])
            assert stays.sum() == 16
            assert worth[stays].min() >= worth[~stays].max()
            gone += worth[~stays].sum()
        assert told.neurons.loss == pytest.approx(gone, rel=1e-5)


@pytest.mark.parametrize("kind", ["qwen3_moe", "gpt_oss", "granitemoe", "nemotron_h"])
def test_by_weights_a_neuron_is_worth_the_product_of_its_lengths(kind: str, tmp_path: Path) -> None:
    folder = mixture(tmp_path / "parent", kind)
    checkpoint, stored = Checkpoint.open(folder), load_file(folder / FILE)
    layer, ledger = 2, ledger_of(checkpoint)
    worth = neurons_by_weights(checkpoint, layer, ledger)
    for expert in range(8):
        if kind in ("gpt_oss", "granitemoe"):
            inside = [v for name, v in stored.items() if f"layers.{layer}." in name and v.ndim == 3]
            up, down = sorted((value[expert].double() for value in inside), key=lambda x: -x.numel())
            rows, columns = (up.T, down) if kind == "gpt_oss" else (up, down.T)
            both = (rows[::2], rows[1::2]) if kind == "gpt_oss" else rows.chunk(2)
        else:
            named = {
                name.split(".")[-2]: value.double()
                for name, value in stored.items()
                if f"layers.{layer}." in name and f"experts.{expert}." in name
            }
            columns = named.pop("down_proj").T
            both = tuple(named.values())
        product = columns.norm(dim=1)
        for part in both:
            product = product * part.norm(dim=1)
        np.testing.assert_allclose(worth[expert], product.numpy(), rtol=1e-5)


@given(st.integers(1, 4), st.integers(1, 6), st.data())
def test_what_stays_and_what_is_lost_are_everything(experts: int, size: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, size))
    values = st.lists(st.integers(0, 9), min_size=experts * size, max_size=experts * size)
    worth = np.array(data.draw(values), float).reshape(experts, size)
    kept, gone = best_of_rows(worth, count), losses_of_neurons(worth)[:, count]
    assert kept.shape == (experts, count)
    for row, numbers, loss in zip(worth, kept, gone, strict=True):
        least = min(sum(row[list(left)]) for left in combinations(range(size), size - count))
        assert loss == least == row.sum() - row[numbers].sum()
        assert (np.diff(numbers) > 0).all()


@given(st.data())
def test_the_joint_plan_loses_least_of_all_pairs(data: st.DataObject) -> None:
    """Fewer experts lose no less, more neurons of as many experts no more; costs rise with both."""
    counts, widths = 5, 4
    steps = st.lists(st.integers(0, 5), min_size=counts, max_size=counts)
    alone = np.cumsum(data.draw(steps))[::-1]  # by the number of experts, falling
    rows = [
        np.cumsum(data.draw(st.lists(st.integers(0, 9), min_size=widths, max_size=widths)))[::-1]
        for _ in range(counts)
    ]
    limit = data.draw(st.integers(0, 25))

    def fits(count: int, width: int) -> bool:
        return (count + 1) * (width + 1) <= limit

    def most(count: int) -> int | None:
        return max((width for width in range(widths) if fits(count, width)), default=None)

    pairs = [pair for pair in product(range(counts), range(widths)) if fits(*pair)]
    if not pairs:
        with pytest.raises(ValueError, match="within the budgets"):
            least_lost(range(counts), most, lambda c: float(alone[c]), lambda c, w: float(rows[c][w]))
        return
    plan = least_lost(range(counts), most, lambda c: float(alone[c]), lambda c, w: float(rows[c][w]))
    assert fits(plan.experts, plan.neurons)
    assert plan.loss == alone[plan.experts] + rows[plan.experts][plan.neurons]
    assert plan.loss == min(alone[count] + rows[count][width] for count, width in pairs)


@pytest.mark.parametrize("kind", ["mixtral", "deepseek_v3"])
@pytest.mark.parametrize(
    "budget", [{"max_params": "0.7x"}, {"max_params": "0.8x", "max_active_params": "0.95x"}]
)
def test_both_are_planned_as_by_trying_all(
    kind: str, budget: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All numbers of experts and neurons, all choices of experts, on the sums of the pass."""
    monkeypatch.setenv("ZEROLM_CACHE", str(tmp_path / "cache"))
    folder = mixture(tmp_path / "parent", kind)
    flags: dict[str, Any] = {"text": "random", "sequences": 6, "length": 12, "criterion": "hope_moments"}
    carved = carve(folder, keep_experts="auto", keep_expert_ffn="auto", budgets=budget, **flags)
    checkpoint = Checkpoint.open(folder)
    calibration = tokens_of(checkpoint, "random", sequences=6, length=12).divided().fitted
    use = expert_use(checkpoint, mapped_model(checkpoint), calibration, neurons=True)
    whole, layers = checkpoint.layout.sizes["expert_ffn"], expert_layers(checkpoint)
    parent = costs_of(checkpoint, StoredCosts())
    best: tuple[float, int, int] | None = None
    for count in range(8, 1, -1) if kind == "mixtral" else (8, 6, 4):
        chosen, alone = {}, 0.0
        for layer in layers:
            pairs = use[layer]["product"]
            sets = [
                list(gone)
                for gone in combinations(range(8), 8 - count)
                if kind == "mixtral" or 2 * sum(expert < 4 for expert in gone) == 8 - count
            ]
            losses = [pairs[np.ix_(gone, gone)].sum() for gone in sets]
            gone = sets[int(np.argmin(losses))]
            alone += min(losses)
            chosen[layer] = np.setdiff1d(np.arange(8), gone)
        for width in range(whole, 7, -8):
            neurons = {layer: np.tile(np.arange(width), (count, 1)) for layer in layers}
            child = costs_of(FewerExperts(checkpoint, chosen, neurons=neurons).shaped(), StoredCosts())
            names = {name.removeprefix("max_"): float(share[:-1]) for name, share in budget.items()}
            if any(child[name] > share * parent[name] for name, share in names.items()):
                continue
            more = sum(
                np.sort(use[layer]["neurons"][chosen[layer]], axis=1)[:, : whole - width].sum()
                for layer in layers
            )
            if best is None or alone + more < best[0] * (1 - 1e-9):
                best = (alone + more, count, width)
    assert (carved.experts.child, carved.experts.ffn.child) == best[1:]
    told = sum(row.loss + (row.lost_by_neurons or 0.0) for row in carved.experts.layers)
    assert told == pytest.approx(best[0], rel=1e-5)


@pytest.mark.parametrize(
    "sizes",
    [
        {"keep_experts": "6", "keep_expert_ffn": "auto"},
        {"keep_experts": "auto", "keep_expert_ffn": "32"},
        {"keep_experts": "auto"},
    ],
)
def test_with_one_number_the_other_is_the_most_that_fits(sizes: dict[str, str], tmp_path: Path) -> None:
    folder = mixture(tmp_path / "parent", "mixtral")
    checkpoint = Checkpoint.open(folder)
    carved = carve(folder, **sizes, criterion="aimer", budgets={"max_params": "0.6x"})
    count, ffn, named = carved.experts.child, carved.experts.ffn, {"keep_expert_ffn": "40"} | sizes
    width = ffn.child if ffn else 40
    assert {str(count), str(width)} & {*named.values()}

    def params(count: int, width: int) -> int:
        layers = expert_layers(checkpoint)
        neurons = {layer: np.tile(np.arange(width), (count, 1)) for layer in layers}
        kept = {layer: np.arange(count) for layer in layers}
        return sum(tensor.bytes // 4 for tensor in FewerExperts(checkpoint, kept, neurons=neurons).outgoing())

    limit = 0.6 * carved.costs["parent"]["params"]
    more = params(count, width + 8) if named["keep_expert_ffn"] == "auto" else params(count + 1, width)
    assert carved.costs["child"]["params"] == params(count, width) <= limit < more
    with pytest.raises(ValueError, match="max_params 10 would have to be at least"):
        carve(folder, **sizes, criterion="aimer", budgets={"max_params": 10})


@given(st.lists(st.integers(1, 512), min_size=1, max_size=200, unique=True).map(sorted))
def test_numbers_that_are_tried_are_all_or_some_with_both_ends(counts: list[int]) -> None:
    tried = tried_of(counts)
    assert tried == sorted(set(tried) & set(counts))
    assert (tried[0], tried[-1], len(tried)) == (counts[0], counts[-1], min(TRIED, len(counts)))


SHAPES = [(groups, size) for groups in (1, 2, 3) for size in range(2, 8) if groups * size <= 14]


@settings(max_examples=40, deadline=None)
@given(some.data(), some.sampled_from(SHAPES))
def test_no_other_choice_is_worth_more(data: some.DataObject, shape: tuple[int, int]) -> None:
    groups, size = shape
    experts = groups * size
    each = data.draw(some.integers(1, size))
    worth = np.array(data.draw(some.lists(some.integers(-3, 9), min_size=experts, max_size=experts)), float)
    kept = best_experts(worth, each * groups, groups)
    assert sorted(set(kept.tolist())) == kept.tolist()
    assert np.bincount(kept // size, minlength=groups).tolist() == [each] * groups
    choices = (
        c
        for c in combinations(range(experts), each * groups)
        if all(sum(expert // size == group for expert in c) == each for group in range(groups))
    )
    assert worth[kept].sum() == max(worth[list(c)].sum() for c in choices)


def test_of_equal_experts_the_first_stay() -> None:
    assert best_experts(np.zeros(8), 4, 2).tolist() == [0, 1, 4, 5]


def test_a_worth_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN or infinite"):
        best_experts(np.array([1.0, np.nan]), 1)


def test_those_leave_that_lose_least_together() -> None:
    """By pairs: two that stand in for each other do not both leave, though each alone is the cheapest."""
    pairs = np.array([[1.0, 9.0, 0.0, 0.0], [9.0, 1.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.5], [0.0, 0.0, 0.5, 3.0]])
    chosen = best_by_pairs(pairs, 2)
    assert chosen.kept.tolist() == [1, 3]
    assert (chosen.loss, chosen.gap, chosen.is_proven) == (3.0, None, False)
    assert best_experts(pairs.diagonal(), 2).tolist() == [2, 3], "by single worth both of them go"
    assert best_by_pairs(pairs, 2, 2).kept.tolist() == [1, 3]


ROUTERS = {
    "qwen3_moe": "softmax", "mixtral": "renormalised", "granitemoe": "top-k first", "phimoe": "sparse mixer",
    "deepseek_v3": "sigmoid, a bias and groups", "deepseek_v2": "groups", "ernie4_5_moe": "a bias of [1, e]",
    "gemma4_text": "a scale of each expert", "gpt_oss": "biases of experts",
    "qwen2_moe": "gates as they are", "olmoe": "softmax of all",
}  # fmt: skip


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
