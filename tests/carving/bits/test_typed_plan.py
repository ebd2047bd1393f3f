"""Plans of types and cuts: as good as the best of all that there are, and priced as rounding them tells."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typed_models import fused_parent, some_words, typed_parent

from zerolm.architecture import Ints
from zerolm.carving.bits import options as options_of_types
from zerolm.carving.bits.estimates import RoleEstimates, TypeEstimates
from zerolm.carving.bits.file_moments import of_matrices
from zerolm.carving.bits.kernels import rounded
from zerolm.carving.bits.options import MOST, All, Either, Options, Picks, Tree, least_bytes, least_loss
from zerolm.carving.bits.plan import Within, typed_plans
from zerolm.carving.bits.planner import TypePlanner
from zerolm.carving.bits.typed_child import TypedChild
from zerolm.carving.bits.weighed_child import WeighedChild, importances_of
from zerolm.carving.request import Methods
from zerolm.carving.session import Session
from zerolm.carving.vocabulary.fewer_tokens import shaped
from zerolm.checkpoints import Checkpoint
from zerolm.checkpoints.weight_types import BY_NAME
from zerolm.children.child_tensors import Child
from zerolm.networks.opener import open_model
from zerolm.passes.loss_moments import loss_moments
from zerolm.planning.loss_table import LossTable
from zerolm.planning.part_costs import Choices, StoredCosts
from zerolm.planning.size_request import SizeRequest
from zerolm.planning.sizes import costs_of
from zerolm.progress import silent
from zerolm.solvers.problem import Budgets
from zerolm.solvers.solver import Infeasible
from zerolm.text.calibration import tokens_of
from zerolm.units.importance.criterion import Criterion, FirstUnits
from zerolm.units.kept_units import Cut, dimensions
from zerolm.units.within_layers import UNITS, unit_of_role

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")


TYPES = (BY_NAME["Q8_0"], BY_NAME["Q4_0"])


@pytest.fixture(scope="module")
def estimates(tmp_path_factory: pytest.TempPathFactory) -> TypeEstimates:
    folder = tmp_path_factory.mktemp("typed")
    return estimates_of(typed_parent(folder / "parent"), some_words(folder / "text.txt"))


def estimates_of(parent: Path, text: Path) -> TypeEstimates:
    checkpoint = Checkpoint.open(parent)
    tokens = tokens_of(checkpoint, str(text), sequences=8, length=16)
    moments = loss_moments(open_model(checkpoint), tokens, with_matrices=True).matrices
    child = Child(checkpoint, Cut.whole(dimensions(checkpoint)))
    return TypeEstimates(WeighedChild(child, of_matrices(child, moments)), TYPES, (checkpoint.layout.hidden,))


def in_layers(
    estimates: TypeEstimates, by: Criterion, groups: tuple[int, ...], ffn: tuple[int, ...]
) -> dict[str, RoleEstimates]:
    """Return the estimates of all roles for these numbers of units."""
    return estimates.in_layers(Choices((groups, ffn), (estimates.parent.depth,)), by)


def table(seed: int) -> LossTable:
    rng = np.random.default_rng(seed)
    sizes = {"groups": np.array([1, 2]), "ffn": np.array([32, 64, 96])}
    losses = {kind: [np.append(np.sort(rng.random(len(each) - 1))[::-1], 0.0) * 1e-2 for _ in range(2)]
              for kind, each in sizes.items()}  # fmt: skip
    return LossTable(FirstUnits(-1.0), sizes, losses, 0.05 * rng.random(2))


def of(budget: int) -> Within:
    return Within(budget, Budgets.of({}), StoredCosts())


def exact_price(estimates: TypeEstimates, layer: int, role: str, kind: str) -> float:
    """Return 1/2 f sum_rc E[G_r^2] e_rc^2 E[x_c^2] of a whole matrix, by its definition."""
    (matrix,) = estimates.weighed.matrices[layer, role]
    (values,), (moments,) = matrix.values(), estimates.weighed.parts(matrix, 0)
    errors = np.square(rounded(values, BY_NAME[kind], importances_of([moments])) - values, dtype=np.float64)
    return float(0.5 * moments.factor * moments.gradients @ errors @ moments.inputs)


def test_a_whole_matrix_is_priced_by_the_formula(estimates: TypeEstimates) -> None:
    roles = in_layers(estimates, FirstUnits(None), (2,), (96,))
    assert set(roles) == {role for unit in UNITS for role in unit.matrices}
    for role, priced in roles.items():
        for layer, (place, one) in itertools.product(range(2), enumerate(priced.types)):
            wanted = exact_price(estimates, layer, role, one.name)
            assert np.isclose(priced.loss[layer, 0, place], wanted, rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_fused_matrix_is_priced_by_the_rows_of_its_units(groups: int, tmp_path: Path) -> None:
    """They are those that a cut keeps, wherever they lie."""
    estimates = estimates_of(fused_parent(tmp_path / "parent"), some_words(tmp_path / "text.txt"))
    checkpoint, by = estimates.checkpoint, Last()
    cut = Cut.of(estimates.parent, (0, 1), lambda layer: (groups, 32 * groups), by.choose)
    part = in_layers(estimates, by, (groups,), (32 * groups,))
    whole = in_layers(estimates, by, (2,), (96,))
    assert set(whole) == {"q+k+v", "o", "gate+up", "down"}
    for layer, role in itertools.product(range(2), ("q+k+v", "gate+up")):
        (matrix,) = estimates.weighed.matrices[layer, role]
        (values,), (moments,) = matrix.values(), estimates.weighed.parts(matrix, 0)
        name = checkpoint.layout.name(role, layer) or ""
        rows = cut.kept(cut.layers[layer], checkpoint.layout.slots[name].axes[0])
        kept = slice(None) if rows is None else rows  # the file has them in the order of the checkpoint
        np.testing.assert_array_equal(values, checkpoint.read(name))
        squares = moments.gradients * (np.square(values) @ moments.inputs)
        share = squares[kept].sum() / squares.sum()
        np.testing.assert_allclose(part[role].loss[layer, 0], share * whole[role].loss[layer, 0], rtol=1e-5)
        for place, one in enumerate(whole[role].types):
            wanted = exact_price(estimates, layer, role, one.name)
            assert np.isclose(whole[role].loss[layer, 0, place], wanted, rtol=0.1)


class Last(FirstUnits):
    """Keeps the last units."""

    def __init__(self) -> None:
        super().__init__(None)

    def choose(self, layer: int, kind: str, count: int) -> Ints:
        return np.arange({"groups": 2, "ffn": 96}[kind])[-count:]


def brute(
    estimates: TypeEstimates, by: LossTable, budget: int, *, uniform: bool, most_groups: int = 4
) -> float:
    """Return the least loss of all sizes, layers and types, by trying what each of them costs.

    All layers together have at most this number of KV groups.
    """
    fronts, roles = [], in_layers(estimates, by, (1, 2), (32, 64, 96))
    for layer in range(2):
        options: dict[tuple[int, int] | None, list[tuple[int, float]]] = {
            None: [(0, float(by.without_layer[layer]))]
        }
        for g, f in itertools.product(range(2), range(3)):
            rows = [(2 * 4 * 64, float(by.losses["groups"][layer][g] + by.losses["ffn"][layer][f]))]
            for role, one in roles.items():
                size = g if unit_of_role(role) is UNITS[0] else f
                rows = [
                    (b + int(one.bytes[layer, size, t]), loss + float(one.loss[layer, size, t]))
                    for b, loss in rows
                    for t in range(len(one.types))
                    if np.isfinite(one.loss[layer, size, t])
                ]
                rows = [
                    row for row in sorted(rows) if not any(o[0] <= row[0] and o[1] < row[1] for o in rows)
                ]
            options[g, f] = rows
        fronts.append(options)
    ends = [(4 * 64, 0.0)]
    for one in estimates.outside(None).values():
        ends = [
            (b + int(s), loss + float(x))
            for b, loss in ends
            for s, x in zip(one.bytes[0, 0], one.loss[0, 0], strict=True)
        ]
    best = np.inf
    for first, second in itertools.product(fronts[0], fronts[1]):
        if first is None and second is None:
            continue
        if uniform and None not in (first, second) and first != second:
            continue
        if sum(1 + size[0] for size in (first, second) if size is not None) > most_groups:
            continue
        for a, b, c in itertools.product(fronts[0][first], fronts[1][second], ends):
            if a[0] + b[0] + c[0] <= budget:
                best = min(best, a[1] + b[1] + c[1])
    return best


@given(st.integers(0, 50), st.floats(0.2, 1.0), st.booleans())
def test_the_plan_is_the_best(estimates: TypeEstimates, seed: int, share: float, uniform: bool) -> None:
    checkpoint, by = estimates.checkpoint, table(seed)
    budget = int(share * sum(2 * one.count for one in checkpoint.tensors.values()) / 2)
    request = SizeRequest.of(
        budgets={"max_weight_bytes": budget}, shape="uniform" if uniform else "per-layer", multiple_of=32
    )
    wanted = brute(estimates, by, budget, uniform=uniform)
    if not np.isfinite(wanted):
        with pytest.raises(ValueError, match="no types keep the budgets together: --max-weight-bytes"):
            typed_plans(estimates, by, request, of(budget))
        return
    plan = typed_plans(estimates, by, request, of(budget))[0]
    assert np.isclose(plan.loss, wanted, rtol=1e-9)
    assert plan.optimal
    assert plan.bytes <= budget
    assert TypedChild(WeighedChild(Child(checkpoint, plan.cut)), plan.types).bytes == plan.bytes


GROUP: Final = 2 * 2 * 16 * 1024
"""Bytes of the KV cache of one group: keys and values of 16 channels in 16 bits, for 1,024 tokens."""


def test_other_budgets_hold_beside_the_bytes(estimates: TypeEstimates) -> None:
    by: Criterion = table(0)
    budgets = {"max_weight_bytes": 60_000, "max_kv_bytes": 2 * GROUP}
    request = SizeRequest.of(budgets=budgets, multiple_of=32)
    within = Within(60_000, Budgets.of({"max_kv_bytes": budgets["max_kv_bytes"]}), StoredCosts())
    plan = typed_plans(estimates, by, request, within)[0]
    assert len(plan.cut.layers) * len(plan.cut.layers[0]["groups"]) <= 2
    assert typed_plans(estimates, by, request, of(60_000))[0].loss <= plan.loss


@given(st.integers(0, 50), st.floats(0.3, 1.0), st.integers(1, 4))
def test_separate_sizes_within_other_budgets_are_within_their_gap(
    estimates: TypeEstimates, seed: int, share: float, most_groups: int
) -> None:
    by, limit = table(seed), most_groups * GROUP
    budget = int(share * sum(2 * one.count for one in estimates.checkpoint.tensors.values()) / 2)
    budgets = {"max_weight_bytes": budget, "max_kv_bytes": limit}
    request = SizeRequest.of(budgets=budgets, shape="per-layer", multiple_of=32)
    within = Within(budget, Budgets.of({"max_kv_bytes": limit}), StoredCosts())
    wanted = brute(estimates, by, budget, uniform=False, most_groups=most_groups)
    if not np.isfinite(wanted):
        with pytest.raises(ValueError, match=r"together: --max-weight-bytes, --max-kv-bytes$"):
            typed_plans(estimates, by, request, within)
        return
    plan = typed_plans(estimates, by, request, within)[0]
    assert plan.bytes <= budget
    assert plan.costs["kv_bytes"] <= limit
    assert plan.loss - plan.gap <= wanted * (1 + 1e-9)
    assert wanted <= plan.loss * (1 + 1e-9)
    assert plan.optimal <= np.isclose(plan.loss, wanted, rtol=1e-9)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("planned")
    parent = typed_parent(folder / "parent", torch.float32, tie_word_embeddings=False)
    methods = Methods(
        "surgeon", "prices", str(some_words(folder / "text.txt")), sequences=8, length=16,
        repair="least-squares",
    )  # fmt: skip
    return Session(Checkpoint.open(parent), methods, silent, types=True)


def test_fewer_tokens_leave_their_bytes_to_the_rest(session: Session) -> None:
    """Plans of a smaller vocabulary count its rows, with the losses that the parent's rows have."""
    whole = sum(4 * one.count for one in session.checkpoint.tensors.values())
    size = SizeRequest.of({"all": 1}, budgets={"max_weight_bytes": int(0.15 * whole)})
    parents = [session.checkpoint, shaped(session.checkpoint, session.checkpoint.layout.vocab // 2)]
    planners = [TypePlanner(each, size, session, StoredCosts(), silent) for each in parents]
    _ = planners[0].estimates(FirstUnits(None)).measured
    by = FirstUnits(None)
    all_tokens, half = (planner.estimates(by).outside(None) for planner in planners)
    for role, one in all_tokens.items():
        np.testing.assert_array_equal(one.bytes, 2 * half[role].bytes)
        np.testing.assert_array_equal(one.loss, half[role].loss)
    plans = [planner.predicted(by)[0] for planner in planners]
    assert plans[1].loss < plans[0].loss


@pytest.mark.parametrize("shape", ["uniform", "per-layer"])
def test_other_budgets_that_no_child_keeps_are_refused_before_the_text(session: Session, shape: str) -> None:
    budgets = {"max_weight_bytes": 10**6, "max_kv_bytes": 1}
    size = SizeRequest.of(budgets=budgets, shape=shape)
    planner = TypePlanner(session.checkpoint, size, session, StoredCosts(), silent)
    with pytest.raises(Infeasible, match=r"max_kv_bytes 1 would have to be at least [1-9]\d*$"):
        planner.check(by_loss=True)


@pytest.mark.parametrize("share", [0.1, 0.2])
def test_the_best_by_each_table_are_measured_and_told_by_the_first(session: Session, share: float) -> None:
    whole = sum(4 * one.count for one in session.checkpoint.tensors.values())
    size = SizeRequest.of(budgets={"max_weight_bytes": int(share * whole)})
    tables = session.table(session.importance(), ["groups", "ffn"], with_stream=True).every
    assert len(tables) == 3

    def planner() -> TypePlanner:
        return TypePlanner(session.checkpoint, size, session, StoredCosts(), silent)

    alone = [planner().predicted(by)[0] for by in tables]
    _, compared, loss = planner().best(tables)
    told = {round(each.predicted, 9) for each in compared}
    for plan, by in zip(alone, tables, strict=True):
        cut = planner().narrowed(plan)
        stored = costs_of(session.checkpoint, StoredCosts(), cut)
        assert plan.costs == stored | {"weight_bytes": plan.bytes}
        assert round(plan.loss - by.predicted(cut) + tables[0].predicted(cut), 9) in told
    measured = [each.measured for each in compared if not each.name.endswith(" everywhere")]
    assert loss == min(filter(None, measured))


names = itertools.count()


def options(name: int, rows: list[tuple[int, float]]) -> Options:
    """Return a table of (bytes, loss)."""
    sizes, losses = zip(*rows, strict=True)
    return Options(name, np.array(sizes, np.int64), np.array(losses, np.float64))


LOSSES = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 3.5, 7.0]) | st.floats(0, 10)
TABLES = st.lists(st.tuples(st.integers(0, 50), LOSSES), min_size=1, max_size=4).map(
    lambda rows: options(next(names), rows)
)
TREES = st.recursive(
    TABLES,
    lambda parts: (
        st.lists(parts, min_size=1, max_size=3).map(lambda each: All(tuple(each)))
        | st.lists(parts, min_size=1, max_size=3).map(lambda each: Either(next(names), tuple(each)))
    ),
    max_leaves=6,
)


def every(tree: Tree) -> Iterator[tuple[Picks, int, float]]:
    if isinstance(tree, Options):
        for row, (size, loss) in enumerate(zip(tree.bytes.tolist(), tree.loss.tolist(), strict=True)):
            yield {tree.name: row}, size, loss
    elif isinstance(tree, Either):
        for place, part in enumerate(tree.parts):
            for picks, size, loss in every(part):
                yield {tree.name: place, **picks}, size, loss
    else:
        for parts in itertools.product(*(list(every(part)) for part in tree.parts)):
            picks = {name: row for each, _, _ in parts for name, row in each.items()}
            yield picks, sum(size for _, size, _ in parts), sum(loss for _, _, loss in parts)


SUMS = st.lists(TREES, min_size=2, max_size=4).map(lambda parts: All(tuple(parts)))


@settings(max_examples=300)
@given(TREES | SUMS, st.integers(0, 200), st.just(np.inf) | st.floats(0, 20), st.sampled_from([1, 4, MOST]))
def test_the_least_loss_is_that_of_all_choices(tree: Tree, budget: int, below: float, most: int) -> None:
    """Also where trees with more than a few pairs of choices are divided."""
    able = [(loss, size) for _, size, loss in every(tree) if size <= budget and loss < below - 1e-9]
    with mock.patch.object(options_of_types, "MOST", most):
        best = least_loss(tree, budget, below)
    if not able:
        assert best is None or best.loss >= below - 1e-9
        return
    assert abs(best.loss - min(able)[0]) <= 1e-9
    assert best.bytes <= budget
    assert (best.picks, best.bytes) in [(picks, size) for picks, size, _ in every(tree)]


@given(TREES)
def test_the_fewest_bytes_are_those_of_all_choices(tree: Tree) -> None:
    least = min(size for _, size, _ in every(tree))
    assert least_bytes(tree) == least
    assert least_loss(tree, least - 1) is None
    assert least_loss(tree, least) is not None


def test_bytes_of_gigabytes_round_no_bound_away() -> None:
    rng = np.random.default_rng(0)
    sizes = np.array([1 << 28, 1 << 29, 1 << 30])
    tables = [
        options(i, list(zip(sizes.tolist(), np.sort(rng.random(3))[::-1] * 1e-4, strict=True)))
        for i in range(6)
    ]
    tree = All(tuple(tables))
    budget = int(3.5e9)
    best = least_loss(tree, budget)
    assert np.isclose(best.loss, min(loss for _, size, loss in every(tree) if size <= budget), rtol=1e-12)


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1))
def test_a_budget_of_the_fewest_bytes_is_kept(seed: int) -> None:
    """Losses are small there beside what a byte is worth, and sums of them are rounded."""
    rng = np.random.default_rng(seed)

    def table(_: int) -> Tree:
        sizes = np.array([16 * 96, 8 * 96, 4.5 * 96], np.int64) * int(rng.integers(1, 200))
        return Options(next(names), sizes, np.sort(10 ** rng.uniform(-12, -2, 3)))

    layers = (Either(next(names), (All(tuple(map(table, range(7)))),)) for _ in range(4))
    tree = All((*layers, table(0)))
    least = least_bytes(tree)
    assert least_loss(tree, least).bytes == least
    assert least_loss(tree, least - 1) is None
