"""Criteria from weights, and plans that nothing of their shape beats."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import model, saved

from zerolm.carving.carve import Wish, choices, costs_of, from_recipe, plan, to_recipe, widths
from zerolm.carving.criteria import WEIGHTS_ONLY, Criterion, criterion, dimensions
from zerolm.carving.plan import accounts
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.costs import COSTS, CostModel

FAMILIES = ("llama", "llama_biased", "qwen2", "qwen3", "gemma2", "mistral", "gpt2", "bert")
COST = CostModel(context=16)


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoint]:
    return {name: Checkpoint.open(saved(tmp_path_factory.mktemp(name), name)) for name in FAMILIES}


def made(checkpoint: Checkpoint, name: str) -> Criterion:
    return criterion(name, checkpoint, ledger_of(checkpoint, cache=False), seed=1)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_parent_costs_what_it_is(name: str, parents: dict[str, Checkpoint]) -> None:
    assert costs_of(parents[name], COST)["params"] == sum(p.numel() for p in model(name).parameters())


@pytest.mark.parametrize("name", ["llama", "qwen3", "bert"])
def test_capacity_by_hand(name: str, parents: dict[str, Checkpoint]) -> None:
    """Kept ||W||_F^2 over min(rows, cols) of the parent, from the weights themselves."""
    checkpoint = parents[name]
    sizes, layout = dimensions(checkpoint), checkpoint.layout
    wanted = np.zeros(sizes.ffn)
    for role in ("gate", "up", "down"):
        tensor = layout.name(role, 1)
        if tensor is None:
            continue
        weight = checkpoint.read(tensor).astype(float)
        weight = weight.T if role == "down" else weight
        wanted += (weight**2).sum(axis=1) / min(weight.shape)
    best = np.sort(np.argsort(-wanted)[:7])
    capacity = made(checkpoint, "capacity")
    assert capacity.choose(1, "ffn", 7).tolist() == best.tolist()
    assert capacity.worth(1, "ffn", 7) == pytest.approx(wanted[best].sum(), rel=1e-6)


@given(data=st.data())
def test_capacity_is_monotone(data: st.DataObject, parents: dict[str, Checkpoint]) -> None:
    """More kept is never worth less; of no other criterion is that promised."""
    checkpoint = parents[data.draw(st.sampled_from(FAMILIES))]
    capacity, sizes = made(checkpoint, "capacity"), dimensions(checkpoint)
    layer = data.draw(st.integers(0, sizes.depth - 1))
    less, more = sorted(data.draw(st.tuples(*[st.integers(1, sizes.ffn)] * 2)))
    assert capacity.worth(layer, "ffn", less) <= capacity.worth(layer, "ffn", more)
    assert set(capacity.choose(layer, "ffn", less)) <= set(capacity.choose(layer, "ffn", more))


def test_equation_3_is_not_monotone(parents: dict[str, Checkpoint]) -> None:
    """Where the cut side is the shorter one, dropping weak neurons raises the literal score."""
    literal = made(parents["llama"], "zerolm")
    worth = [literal.worth(0, "ffn", count) for count in range(1, 41)]
    assert any(b < a for a, b in itertools.pairwise(worth))


@pytest.mark.parametrize("name", WEIGHTS_ONLY)
def test_choices_are_ascending_and_as_many_as_asked(name: str, parents: dict[str, Checkpoint]) -> None:
    chosen = made(parents["llama"], name).choose(0, "ffn", 9)
    assert len(chosen) == 9
    assert (np.diff(chosen) > 0).all()
    if name == "prefix":
        assert chosen.tolist() == list(range(9))


def test_max_weight_drops_the_neuron_of_zeros(tmp_path: Path) -> None:
    import torch

    network = model("llama")
    with torch.no_grad():
        for name in ("gate_proj", "up_proj"):
            getattr(network.model.layers[0].mlp, name).weight[5] = 0.0
    network.save_pretrained(tmp_path)
    chosen = made(Checkpoint.open(tmp_path), "max_weight").choose(0, "ffn", 39)
    assert 5 not in chosen


@pytest.mark.parametrize("name", ["llama", "bert", "gemma2"])
@pytest.mark.parametrize("budget", ["params", "macs", "kv_bytes"])
def test_uniform_plans_are_the_best_of_all(name: str, budget: str, parents: dict[str, Checkpoint]) -> None:
    """Against every depth, number of groups and number of neurons, counted and summed anew."""
    checkpoint = parents[name]
    limit = int(0.7 * costs_of(checkpoint, COST)[budget])
    wish = Wish(budgets={f"max_{budget}": limit}, multiple_of=8)
    score, sizes = made(checkpoint, "capacity"), choices(checkpoint, wish)
    account = accounts(checkpoint, sizes, COST)
    depth = dimensions(checkpoint).depth
    best = -1.0
    for groups, ffn, layers in itertools.product(sizes.groups, sizes.ffn, sizes.depth):
        costs = dict(zip(COSTS, account.of([(groups, ffn)] * layers), strict=True))
        if costs[budget] > limit:
            continue
        values = [score.worth(i, "groups", groups) + score.worth(i, "ffn", ffn) for i in range(depth)]
        best = max(best, sum(sorted(values)[-layers:]))
    planned = plan(checkpoint, score, wish, COST)
    assert planned.worth == pytest.approx(best)
    assert planned.costs[budget] <= limit
    assert planned.cut.uniform


@pytest.mark.parametrize("budgets", [("params",), ("params", "kv_bytes"), ("macs", "params", "kv_bytes")])
def test_per_layer_plans_are_the_best_of_all(
    budgets: tuple[str, ...], parents: dict[str, Checkpoint]
) -> None:
    checkpoint = parents["llama"]
    limits = {name: int(0.8 * costs_of(checkpoint, COST)[name]) for name in budgets}
    wish = Wish("per-layer", budgets={f"max_{name}": limit for name, limit in limits.items()}, multiple_of=10)
    score, sizes = made(checkpoint, "capacity"), choices(checkpoint, wish)
    account = accounts(checkpoint, sizes, COST)
    pairs = list(itertools.product(sizes.groups, sizes.ffn))
    best = -1.0
    for layers in itertools.product(pairs, repeat=3):
        costs = dict(zip(COSTS, account.of(layers), strict=True))
        if any(costs[name] > limit for name, limit in limits.items()):
            continue
        best = max(
            best,
            sum(
                score.worth(i, "groups", groups) + score.worth(i, "ffn", ffn)
                for i, (groups, ffn) in enumerate(layers)
            ),
        )
    planned = plan(checkpoint, score, wish, COST)
    assert planned.worth == pytest.approx(best)
    assert planned.optimal
    assert all(planned.costs[name] <= limit for name, limit in limits.items())


def test_a_plan_costs_what_its_child_is(parents: dict[str, Checkpoint]) -> None:
    """Tensor by tensor, with biases and norms, of other sizes in each layer."""
    from zerolm.carving.sliced import apply_in_memory

    for name in ("llama_biased", "qwen3", "bert"):
        checkpoint = parents[name]
        limit = int(0.8 * costs_of(checkpoint, COST)["params"])
        wish = Wish("per-layer", budgets={"max_params": limit}, multiple_of=1)
        planned = plan(checkpoint, made(checkpoint, "capacity"), wish, COST)
        child = apply_in_memory(model(name), planned.cut)
        assert planned.costs["params"] == sum(p.numel() for p in child.parameters())


def test_widths_outright(parents: dict[str, Checkpoint]) -> None:
    wish = Wish(keep_ffn=0.5, keep_heads=0.5, keep_layers=0.67)
    planned = plan(parents["llama"], made(parents["llama"], "capacity"), wish, COST)
    assert [(size["heads"], size["kv_heads"], size["ffn"]) for size in widths(planned.cut)] == [
        (3, 1, 20)
    ] * 2
    tensor_parallel = Wish(keep_ffn=0.55, multiple_of=8, tensor_parallel=2)
    planned = plan(parents["llama"], made(parents["llama"], "capacity"), tensor_parallel, COST)
    assert len(planned.cut.layers[0].ffn) == 24


BAD = {
    "nothing asked": ("llama", Wish(), "nothing says how small"),
    "heads of bert": ("bert", Wish(keep_heads=0.5), "heads cannot be cut here"),
    "no share": ("llama", Wish(keep_ffn=1.5), r"must lie in \(0, 1\]"),
    "too small a budget": (
        "llama",
        Wish(budgets={"max_params": 10}),
        "max_params 10 would have to be at least",
    ),
    "unknown shape": ("llama", Wish("round", keep_ffn=0.5), "shape 'round' is not known; there are uniform"),
    "no size left": ("llama", Wish(budgets={"max_params": 10**6}, least_ffn=100), "no size is left"),
}


@pytest.mark.parametrize("case", BAD)
def test_wishes_that_cannot_be_met(case: str, parents: dict[str, Checkpoint]) -> None:
    name, wish, words = BAD[case]
    with pytest.raises(ValueError, match=words):
        plan(parents[name], made(parents[name], "capacity"), wish, COST)


def test_recipes_go_round_and_are_checked(parents: dict[str, Checkpoint]) -> None:
    checkpoint = parents["llama"]
    wish = Wish("per-layer", budgets={"max_params": int(0.8 * costs_of(checkpoint, COST)["params"])})
    cut = plan(checkpoint, made(checkpoint, "capacity"), wish, COST).cut
    recipe = to_recipe(cut)
    assert to_recipe(from_recipe(cut.parent, recipe)) == recipe
    first = recipe[0]
    for wrong in (
        [],
        {},
        [{**first, "layer": 7}],
        [{**first, "ffn": [3, 2]}],
        [{**first, "ffn": [40]}],
        [{**first, "groups": [True]}],
        [{**first, "groups": []}],
        [first, first],
        [{"layer": 0}],
    ):
        with pytest.raises(ValueError, match=r"recipe|ascend"):
            from_recipe(cut.parent, wrong)
