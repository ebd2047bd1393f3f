"""What the solvers are given: problems, budgets, and tables of the backbones of a space."""

import numpy as np
import pytest
from brute import states
from catalogue import SETTINGS, catalogue
from drawn import limits, problem_lists
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion

from zerolm.costs import COSTS, CostModel
from zerolm.scores import ClosedForm, make_score
from zerolm.solvers.problem import (
    UNBOUNDED,
    Budgets,
    Problem,
    at_least,
    compile_problems,
    near,
    single_limits,
)


@given(problem_lists())
def test_picks_score_cost_and_count_as_when_listed(problems: list[Problem]) -> None:
    for state in states(problems):
        problem = problems[state.problem]
        assert problem.score(state.picks) == state.score
        assert tuple(problem.cost(state.picks).tolist()) == state.costs
        assert problem.ways(state.picks) == state.ways


@given(problem_lists())
def test_extreme_costs_are_attained_and_never_passed(problems: list[Problem]) -> None:
    for index, problem in enumerate(problems):
        costs = np.array([state.costs for state in states(problems) if state.problem == index])
        low, high = problem.extreme_costs
        assert low.tolist() == costs.min(axis=0).tolist()
        assert high.tolist() == costs.max(axis=0).tolist()


@given(problem_lists(), st.data())
def test_budgets_allow_what_keeps_every_limit(problems: list[Problem], data: st.DataObject) -> None:
    budgets, listed = data.draw(limits(problems)), states(problems)
    allowed = budgets.allow(np.array([state.costs for state in listed])).tolist()
    assert allowed == [state.keeps(budgets) for state in listed]


@given(problem_lists(), st.data())
def test_active_limits_are_those_that_something_breaks(problems: list[Problem], data: st.DataObject) -> None:
    budgets, listed = data.draw(limits(problems)), states(problems)
    expected = {("max", i) for i in range(len(COSTS)) if any(s.costs[i] > budgets.high[i] for s in listed)}
    expected |= {("min", i) for i in range(len(COSTS)) if any(s.costs[i] < budgets.low[i] for s in listed)}
    found = budgets.active(problems)
    assert set(found) == expected
    assert len(found) == len(expected)


@settings(max_examples=portion(200))
@given(problem_lists(), st.data(), st.integers(0, len(COSTS) - 1))
def test_one_limit_allows_what_budgets_do(problems: list[Problem], data: st.DataObject, column: int) -> None:
    """Where several budgets are one: costs that grow in proportion."""
    budgets = data.draw(limits(problems))
    found = single_limits(problems, budgets, column)
    if found is None:
        assert len(budgets.active(problems)) > 1 or budgets.active(problems) != [("max", column)]
        return
    for state in states(problems):
        assert (state.costs[column] <= found[state.problem]) == state.keeps(budgets)


def test_budgets_by_name() -> None:
    budgets = Budgets.of({"max_params": 5, "min_macs": 3, "max_kv_bytes": 1 << 80})
    assert dict(zip(COSTS, budgets.high.tolist(), strict=True)) == {
        "params": 5, "active_params": UNBOUNDED, "body_params": UNBOUNDED, "macs": UNBOUNDED,
        "kv_bytes": UNBOUNDED, "weight_bytes": UNBOUNDED,
    }  # fmt: skip
    assert dict(zip(COSTS, budgets.low.tolist(), strict=True)) == dict.fromkeys(COSTS, 0) | {"macs": 3}
    assert Budgets.of({}).low.tolist() == [0] * len(COSTS)
    macs = COSTS.index("macs")
    replaced = budgets.replaced("min", macs, 7)
    assert (replaced.low[macs], budgets.low[macs]) == (7, 3)
    assert replaced.high.tolist() == budgets.high.tolist()


@pytest.mark.parametrize(
    ("given_limits", "message"),
    [
        ({"max_size": 1}, "budget 'max_size' is not known; .*params"),
        ({"params": 1}, "budget 'params' is not known"),
        ({"mean_params": 1}, "budget 'mean_params' is not known"),
        ({"max_params": -1}, "must not be negative, but is -1"),
        ({"min_params": 6, "max_params": 5}, "min_params 6 is above max_params 5"),
    ],
)
def test_budgets_that_make_no_sense_are_refused(given_limits: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Budgets.of(given_limits)


@given(st.floats(-1e6, 1e6), st.floats(-1e-8, 1e-8))
def test_scores_within_the_tolerance_reach_a_threshold(threshold: float, relative: float) -> None:
    score = threshold + relative * abs(threshold)
    if abs(relative) < 0.9e-9 or relative > 0:
        assert at_least(score, threshold)
    elif relative < -1.1e-9 and abs(threshold) > 1e-250:
        assert not at_least(score, threshold)
    assert near(threshold) <= threshold
    assert near(threshold) == pytest.approx(threshold - 0.01 * abs(threshold), rel=1e-12)


@pytest.mark.parametrize("name", SETTINGS)
def test_backbones_of_one_depth_share_their_tables(name: str) -> None:
    backbones = list(catalogue(name).space.backbones())
    problems = compile_problems(backbones, make_score("zerolm", alpha=0.5).terms, CostModel())
    tables: dict[tuple[int, int], set[int]] = {}
    for backbone, problem in zip(backbones, problems, strict=True):
        key = id(backbone.blocks[0].candidates), backbone.depth
        tables.setdefault(key, set()).add(id(problem.blocks[0][0]))
    assert all(len(found) == 1 for found in tables.values())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, [0.0, 0.0]])
def test_scores_must_be_one_finite_number_a_layer(value: float | list[float]) -> None:
    backbones = list(catalogue("gpt2").space.backbones())
    form = ClosedForm("bad", lambda shapes, depth: np.array([value] * len(shapes)), "a test")
    with pytest.raises(ValueError, match="'bad' did not give one finite number a layer"):
        compile_problems(backbones, form, CostModel())
