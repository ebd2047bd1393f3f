"""Criteria from weights, and plans that nothing of their shape beats."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tiny import MODELS, model, saved

from zerolm.architecture import Ints
from zerolm.carving.recipe import from_layers, to_layers
from zerolm.carving.result import widths
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.costs import COSTS, CostModel
from zerolm.planning.part_costs import part_costs
from zerolm.planning.plan import NEAR, Planned, finalists, plan_uniform
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.sizes import choices, costs_of, plan_of, sizes_of
from zerolm.solvers.problem import Budgets
from zerolm.units.importance.criteria import criterion_of
from zerolm.units.importance.criterion import Criterion
from zerolm.units.kept_units import Cut, Dimensions, dimensions

FAMILIES = ("llama", "llama_biased", "qwen2", "qwen3", "gemma2", "mistral", "gpt2", "bert")
COST = CostModel(context=16)


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checkpoint]:
    return {name: Checkpoint.open(saved(tmp_path_factory.mktemp(name), name)) for name in FAMILIES}


def made(checkpoint: Checkpoint, name: str) -> Criterion:
    return criterion_of(name, checkpoint, ledger_of(checkpoint, cache=False), seed=1)


class Told(Criterion):
    """Random losses of cutting each layer to each size, and of doing without it."""

    def __init__(self, sizes: Dimensions, seed: int) -> None:
        generator = np.random.default_rng(seed)
        wholes = {"groups": sizes.kv_heads, "ffn": sizes.ffn}
        self.losses = {
            kind: np.cumsum(generator.random((sizes.depth, whole)), axis=1)[:, ::-1] / whole
            for kind, whole in wholes.items()
        }
        self.without_layer = generator.random(sizes.depth)

    def choose(self, layer: int, kind: str, count: int) -> Ints:
        return np.arange(count)

    def score(self, layer: int, kind: str, count: int) -> float:
        return -float(self.losses[kind][layer, count - 1])

    def without(self, layer: int) -> float:
        return -float(self.without_layer[layer])


@pytest.mark.parametrize("name", FAMILIES)
def test_the_parent_costs_what_it_is(name: str, parents: dict[str, Checkpoint]) -> None:
    assert costs_of(parents[name], COST)["params"] == sum(p.numel() for p in model(name).parameters())


@pytest.mark.parametrize("name", ["llama", "qwen3", "bert"])
def test_capacity_by_hand(name: str, parents: dict[str, Checkpoint]) -> None:
    """ArrayCache ||W||_F^2 over min(rows, cols) of the parent, from the weights themselves."""
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
    assert capacity.score(1, "ffn", 7) == pytest.approx(wanted[best].sum(), rel=1e-6)


def test_max_weight_by_hand(parents: dict[str, Checkpoint]) -> None:
    checkpoint = parents["llama"]
    wanted = np.zeros(40)
    for role in ("gate", "up"):
        weight = checkpoint.read(str(checkpoint.layout.name(role, 2)))  # (f, d)
        wanted += weight.max(axis=1) + abs(weight.min(axis=1))
    assert made(checkpoint, "max_weight").choose(2, "ffn", 11).tolist() == sorted(np.argsort(-wanted)[:11])


@pytest.mark.parametrize(
    ("name", "budget"),
    [
        *itertools.product(["llama", "bert", "gemma2"], ["params", "macs"]),
        ("llama", "kv_bytes"),
        ("gemma2", "kv_bytes"),
    ],
)
@pytest.mark.parametrize("told", [False, True])
def test_uniform_plans_are_best(name: str, budget: str, told: bool, parents: dict[str, Checkpoint]) -> None:
    """Against every number of groups and of neurons and, if the criterion can tell, every set of layers."""
    checkpoint = parents[name]
    parent = dimensions(checkpoint)
    limit = int((0.5 if told else 0.83) * costs_of(checkpoint, COST)[budget])
    wish = SizeRequest.of(budgets={f"max_{budget}": limit}, multiple_of=8)
    score = Told(parent, 3) if told else made(checkpoint, "capacity")
    sizes = choices(checkpoint, wish)
    account = part_costs(checkpoint, sizes, COST)
    depths = range(1, parent.depth + 1) if told else [parent.depth]
    sets = [kept for depth in depths for kept in itertools.combinations(range(parent.depth), depth)]
    best = -np.inf
    for groups, ffn, kept in itertools.product(*sizes.units, sets):
        costs = dict(zip(COSTS, account.of(dict.fromkeys(kept, (groups, ffn))), strict=True))
        if costs[budget] <= limit:
            best = max(best, total(score, parent, {i: (groups, ffn) for i in kept}))
    planned = plan_of(checkpoint, score, wish, COST)
    assert planned.score == pytest.approx(best)
    assert planned.costs[budget] <= limit
    assert planned.cut.uniform


@pytest.mark.parametrize("wanted", [set(), *({a, b} for a, b in ((0, 1), (0, 2), (1, 2)))], ids=str)
def test_layers_that_must_stay_stay(wanted: set[int], parents: dict[str, Checkpoint]) -> None:
    """Of all pairs of layers the best that has them, whatever the others are worth."""
    checkpoint = parents["llama"]
    parent, score = dimensions(checkpoint), Told(dimensions(checkpoint), 3)
    sizes = choices(checkpoint, SizeRequest.of(keep={"layers": 0.67}))
    sizes = replace(sizes, required_layers=frozenset(wanted))
    planned = plan_uniform(parent, score, sizes, part_costs(checkpoint, sizes, COST), Budgets.of({}))
    pairs = [pair for pair in itertools.combinations(range(3), 2) if wanted <= set(pair)]
    worths = [total(score, parent, dict.fromkeys(pair, parent.units)) for pair in pairs]
    assert tuple(planned.cut.sizes) == pairs[int(np.argmax(worths))]
    assert planned.score == pytest.approx(max(worths))


def total(score: Criterion, parent: Dimensions, kept: dict[int, tuple[int, int]]) -> float:
    """What a network is worth whose layers have these (groups, neurons)."""
    return sum(
        score.score(i, "groups", kept[i][0]) + score.score(i, "ffn", kept[i][1])
        if i in kept
        else score.without(i) or 0.0
        for i in range(parent.depth)
    )


@pytest.mark.parametrize("budgets", [("params",), ("params", "kv_bytes"), ("macs", "params", "kv_bytes")])
@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_per_layer_plans_are_the_best_of_all(
    budgets: tuple[str, ...], seed: int | None, parents: dict[str, Checkpoint]
) -> None:
    """Against all sizes of all layers and, where the criterion can tell, layers that go."""
    checkpoint = parents["llama"]
    parent = dimensions(checkpoint)
    score = made(checkpoint, "capacity") if seed is None else Told(parent, seed)
    share = 0.8 if seed is None else 0.6
    limits = {name: int(share * costs_of(checkpoint, COST)[name]) for name in budgets}
    wish = SizeRequest.of(
        budgets={f"max_{name}": limit for name, limit in limits.items()}, multiple_of=10, shape="per-layer"
    )
    sizes = choices(checkpoint, wish)
    account = part_costs(checkpoint, sizes, COST)
    pairs = list(itertools.product(*sizes.units))
    best = -np.inf
    for layers in itertools.product([*pairs, None] if seed is not None else pairs, repeat=3):
        kept = {i: pair for i, pair in enumerate(layers) if pair is not None}
        costs = dict(zip(COSTS, account.of(kept), strict=True))
        if kept and all(costs[name] <= limit for name, limit in limits.items()):
            best = max(best, total(score, parent, kept))
    planned = plan_of(checkpoint, score, wish, COST)
    assert planned.score == pytest.approx(best)
    assert planned.optimal
    assert all(planned.costs[name] <= limit for name, limit in limits.items())
    assert planned.costs == costs_of(checkpoint, COST, planned.cut)


def test_widths_outright(parents: dict[str, Checkpoint]) -> None:
    wish = SizeRequest.of(keep={"ffn": 0.5, "heads": 0.5, "layers": 0.67})
    planned = plan_of(parents["llama"], Told(dimensions(parents["llama"]), 0), wish, COST)
    assert [(size.heads, size.kv_heads, size.ffn) for size in widths(planned.cut)] == [(3, 1, 20)] * 2
    tensor_parallel = SizeRequest.of(keep={"ffn": 0.55}, multiple_of=8, tensor_parallel=2)
    planned = plan_of(parents["llama"], made(parents["llama"], "capacity"), tensor_parallel, COST)
    assert len(planned.cut.layers[0]["ffn"]) == 24


@given(
    step=st.one_of(st.none(), st.integers(1, 90)),
    ways=st.integers(1, 6),
    cuts=st.sampled_from(["ffn", "heads"]),
)
def test_the_nearest_divisors_that_leave_a_size_are_named(
    step: int | None, ways: int, cuts: str, parents: dict[str, Checkpoint]
) -> None:
    """None between them and the refused one does."""

    def refusal(**changes: int) -> str:
        try:
            choices(parents["llama"], replace(wish, **changes))
        except ValueError as error:
            return str(error)
        return ""

    wish = SizeRequest.of(keep={cuts: 0.5}, multiple_of=step, tensor_parallel=ways)
    words = refusal()
    for name, value in {"multiple_of": step, "tensor_parallel": ways}.items():
        if words and value is not None:
            possible = [each for each in range(1, 41) if not refusal(**{name: each})]
            near = [
                max((n for n in possible if n < value), default=0),
                min((n for n in possible if n > value), default=0),
            ]
            text = " or ".join(str(n) for n in near if n)
            assert (f"{name} can be {text}" in words) if text else (f"{name} can be" not in words)


BAD = {
    "layers cannot be ranked by weights alone": SizeRequest.of(keep={"layers": 0.5}),
    "no size is left": SizeRequest.of(budgets={"max_params": 10**6}, multiple_of=100),
}


@pytest.mark.parametrize("words", BAD)
def test_wishes_that_cannot_be_met(words: str, parents: dict[str, Checkpoint]) -> None:
    with pytest.raises(ValueError, match=words):
        plan_of(parents["llama"], made(parents["llama"], "capacity"), BAD[words], COST)


def test_recipes_go_round_and_are_checked(parents: dict[str, Checkpoint]) -> None:
    checkpoint = parents["llama"]
    wish = SizeRequest.of(
        budgets={"max_params": int(0.8 * costs_of(checkpoint, COST)["params"])}, shape="per-layer"
    )
    cut = plan_of(checkpoint, made(checkpoint, "capacity"), wish, COST).cut
    recipe = to_layers(cut)
    assert to_layers(from_layers(cut.parent, recipe)) == recipe
    first = recipe[0]
    for wrong in (
        [],
        {},
        [{**first, "layer": 7}],
        [{**first, "ffn": [3, 2]}],
        [{**first, "ffn": [40]}],
        [{**first, "ffn": [10**30]}],
        [{**first, "groups": [True]}],
        [{**first, "groups": []}],
        [first, first],
        [{"layer": 0}],
    ):
        with pytest.raises(ValueError, match=r"recipe|ascend|layers"):
            from_layers(cut.parent, wrong)


def ranking(sizes: list[int], losses: list[float]) -> list[Planned]:
    """Plans by the neurons that stay in their one layer, the least loss first."""
    parent = Dimensions(1, 8, 2, 2, 4, 9)
    order = sorted(range(len(sizes)), key=losses.__getitem__)
    return [Planned(Cut.of(parent, [0], lambda _, f=sizes[i]: (1, f)), {}, -losses[i], True) for i in order]


@given(
    st.lists(st.lists(st.floats(0.1, 1.0), min_size=1, max_size=6), min_size=1, max_size=3),
    st.integers(1, 4),
    st.randoms(),
)
def test_finalists_come_from_each_ranking_in_turn(losses: list[list[float]], most: int, random: Any) -> None:
    ranked = [ranking(random.sample(range(1, 10), len(row)), row) for row in losses]
    chosen = finalists(ranked, most)
    wanted: list[int] = []
    for place in range(6):
        for plans in ranked:
            if place < len(plans) and -plans[place].score <= NEAR * -plans[0].score:
                ffn = len(plans[place].cut.layers[0]["ffn"])
                wanted += [ffn] * (ffn not in wanted)
    assert [len(plan.cut.layers[0]["ffn"]) for plan in chosen] == wanted[:most]
    assert chosen[0] is ranked[0][0]


@pytest.mark.parametrize(
    ("whole", "request_", "sizes"),
    [
        (2048, SizeRequest.of({"ffn": 0.716}), [1472]),
        (2048, SizeRequest.of({"ffn": 0.716}, multiple_of=1), [1466]),
        (4864, SizeRequest.of(budgets={"max_params": 1}), [*range(64, 4865, 64)]),
        (96, SizeRequest.of({"ffn": 0.52}), [50]),
    ],
)
def test_wide_layers_keep_widths_on_which_kernels_are_fast(
    tmp_path: Path, whole: int, request_: SizeRequest, sizes: list[int]
) -> None:
    """By default; tiny networks keep any number."""
    kind, settings = MODELS["llama"]
    network = getattr(transformers, kind)
    network(network.config_class(**settings | {"intermediate_size": whole})).save_pretrained(tmp_path)
    possible = sizes_of(Checkpoint.open(tmp_path), request_)["ffn"]
    share = request_.keep.get("ffn")
    assert (list(possible.possible) if share is None else [possible.nearest(share)]) == sizes
