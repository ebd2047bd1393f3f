"""Bounds by shared prices, and spaces of like layers, against brute force and whole lists."""

import math
from itertools import islice
from typing import Any

import numpy as np
import pytest
from brute import keeping
from drawn import limits, problem_lists
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion
from scipy.optimize import LinearConstraint, milp

from zerolm.costs import COSTS, CostModel
from zerolm.scores import make_score
from zerolm.solvers import milp as programmes
from zerolm.solvers.engine import StateList
from zerolm.solvers.exhaustive import States
from zerolm.solvers.problem import UNBOUNDED, Budgets, Problem, Solution, affordable, compile_problems
from zerolm.solvers.relaxed import Relaxation
from zerolm.solvers.tied import Tied, tied
from zerolm.spaces import make_space


def relaxed_optimum(problem: Problem, budgets: Budgets) -> float:
    """The best score where a candidate may be chosen by parts; -inf where nothing fits."""
    owner = np.repeat(np.arange(len(problem.blocks)), [len(table) for table, _ in problem.blocks])
    counts = [count for _, count in problem.blocks]
    costs = np.concatenate([table.costs for table, _ in problem.blocks]).T
    high = np.where(budgets.high < UNBOUNDED, budgets.high - problem.costs, np.inf)
    solved = milp(
        -np.concatenate([table.score for table, _ in problem.blocks]),
        constraints=[
            LinearConstraint(costs, budgets.low - problem.costs, high),
            LinearConstraint(owner == np.arange(len(counts))[:, None], counts, counts),
        ],
        integrality=0,
    )
    return -math.inf if solved.x is None else problem.factor * -solved.fun + problem.offset


@settings(max_examples=portion(150))
@given(problem_lists(), st.data())
def test_no_bound_lies_below_the_best(problems: list[Problem], data: st.DataObject) -> None:
    """Whatever was tightened, and after other budgets took the place of the first."""
    budgets = data.draw(limits(problems))
    relaxed = Relaxation(problems, data.draw(limits(problems)))
    which = st.lists(st.integers(0, len(problems) - 1), max_size=4)
    for index in data.draw(which):
        relaxed.tighten(index)
    relaxed = relaxed.within(budgets)
    for index in data.draw(which):
        before = relaxed.bounds.copy()
        relaxed.tighten(index)
        assert (relaxed.bounds <= before).all()
    for state in keeping(problems, budgets):
        assert relaxed.bounds[state.problem] >= state.score


@settings(max_examples=portion(150))
@given(problem_lists(max_problems=1), st.data())
def test_a_tightened_bound_is_of_the_linear_relaxation(problems: list[Problem], data: st.DataObject) -> None:
    """The dual's optimum is the primal's, found by a solver of its own formulation."""
    budgets = data.draw(limits(problems))
    relaxed = Relaxation(problems, budgets)
    relaxed.tighten(0)
    assert relaxed.bounds[0] == pytest.approx(relaxed_optimum(problems[0], budgets), rel=1e-9, abs=1e-6)


@settings(max_examples=portion(60))
@given(problem_lists(), st.data())
def test_other_budgets_forget_no_price(problems: list[Problem], data: st.DataObject) -> None:
    """Back within the first budgets, the bounds are those that they were; and the first are untouched."""
    first, second = data.draw(limits(problems)), data.draw(limits(problems))
    relaxed = Relaxation(problems, first)
    for index in np.flatnonzero(relaxed.bounds > -np.inf).tolist():
        relaxed.tighten(index)
    possible = relaxed.bounds > -np.inf
    before = relaxed.bounds.copy()
    again = relaxed.within(second).within(first)
    assert (relaxed.bounds == before).all()
    assert (again.bounds[possible] == before[possible]).all()


@settings(max_examples=portion(60))
@given(problem_lists(), st.data())
def test_what_is_known_of_problems_changes_no_answer(problems: list[Problem], data: st.DataObject) -> None:
    budgets = data.draw(limits(problems))
    relaxed = Relaxation(problems, data.draw(limits(problems)))
    for index in data.draw(st.lists(st.integers(0, len(problems) - 1), max_size=3)):
        relaxed.tighten(index)
    stream = programmes.in_order(problems, budgets, relaxed.within(budgets))
    good = sorted((state.score for state in keeping(problems, budgets)), reverse=True)
    assert [solution.score for solution, _ in islice(stream, 4)] == good[:4]


RANGES: dict[str, dict[str, Any]] = {
    "llama": {"depth": range(2, 9), "hidden": range(128, 513, 64), "head_size": (32, 64),
              "ffn": range(256, 2049, 128), "hidden_per_depth": (16, 128), "query_per_hidden": (0.5, 2)},
    "gpt2-uniform": {"depth": range(2, 9), "hidden": range(128, 513, 64), "ffn": range(256, 2049, 128)},
    "pit": {"base_dim": [16, 24], "depth1": [1, 2], "depth2": [2, 4], "depth3": [3], "heads": [2]},
}  # fmt: skip
SCORES = ("geo", "zerolm", "geo_saturating", "params", "depth", "log_complexity")


def compiled(name: str, score: str) -> Any:
    made = make_score(score, CostModel(), **({"alpha": 0.5} if score == "zerolm" else {})).terms
    return compile_problems(list(make_space(name, **RANGES[name]).backbones()), made, CostModel())


def told(solution: Solution) -> tuple[Any, ...]:
    return solution.problem, solution.picks, solution.score, solution.costs.tolist()


@pytest.mark.parametrize("name", ["llama", "gpt2-uniform"])
@settings(max_examples=portion(25))
@given(data=st.data())
def test_answers_are_those_of_the_whole_list(name: str, data: st.DataObject) -> None:
    problems = compiled(name, data.draw(st.sampled_from(SCORES)))
    states = States.of(problems)
    limits: dict[str, int] = {}
    for cost in data.draw(st.lists(st.sampled_from(COSTS), max_size=3, unique=True)):
        side = data.draw(st.sampled_from(("max", "min") if cost != "params" else ("max",)))
        share = data.draw(st.floats(0.02, 1.0))
        place = share if side == "max" else 1 - share
        value = int(np.quantile(states.costs[:, COSTS.index(cost)], place, method="lower"))
        missed = data.draw(st.sampled_from((0, 1)))  # what costs just the value is within, or is not
        limits[f"{side}_{cost}"] = value + (missed if side == "min" else -missed)
    budgets = Budgets.of(limits)
    column = data.draw(st.integers(0, len(COSTS) - 1))
    listed, engine = StateList(states, budgets, column, True), Tied(problems, budgets, column)
    mine, theirs = (list(islice(one.in_order(), 300)) for one in (engine, listed))
    assert [told(solution) for solution, _ in mine] == [told(solution) for solution, _ in theirs]
    assert [bound for _, bound in mine] == [bound for _, bound in theirs]
    assert engine.peaks() == listed.peaks()
    assert [told(one) for one in engine.front()] == [told(one) for one in listed.front()]
    for side, cost_column in (("max", 0), ("min", 2), ("max", column)):
        free = budgets.replaced(side, cost_column, Budgets().high[0] if side == "max" else 0)
        assert engine.extreme(side, cost_column, free) == listed.extreme(side, cost_column, free)
    if theirs:
        top, last = theirs[0][0].score, theirs[-1][0].score
        for threshold in (top, top - 0.01 * abs(top), last):
            assert engine.count(threshold) == listed.count(threshold)
            assert told(engine.cheapest(threshold)) == told(listed.cheapest(threshold))


def test_only_spaces_of_like_layers_are_tied() -> None:
    assert tied(compiled("llama", "geo"))
    assert not tied(compiled("pit", "geo"))


@settings(max_examples=portion(25))
@given(st.integers(100_000, 30_000_000), st.integers(1_000, 5_000_000))
def test_what_is_not_affordable_has_no_architecture_within_the_budgets(params: int, macs: int) -> None:
    backbones = list(make_space("llama", **RANGES["llama"]).backbones())
    budgets = Budgets.of({"max_params": params, "max_macs": macs})
    made = make_score("geo").terms
    fitting = set(map(id, affordable(backbones, CostModel(), budgets, {})))
    for backbone in backbones:
        (problem,) = compile_problems([backbone], made, CostModel())
        least, _ = problem.extreme_costs
        assert (id(backbone) in fitting) == bool((least <= budgets.high).all())
