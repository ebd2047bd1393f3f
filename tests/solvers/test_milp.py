"""Programmes with several budgets against brute force."""

from itertools import islice

import numpy as np
import pytest
from brute import keeping, states
from drawn import limits, problem_lists
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion

from zerolm.costs import COSTS
from zerolm.solvers import milp
from zerolm.solvers.problem import Budgets, Picks, Problem, at_least
from zerolm.solvers.proven import Proven
from zerolm.spaces import CandidateTable

ONE = problem_lists(max_problems=1)
COLUMNS = st.integers(0, len(COSTS) - 1)


@settings(max_examples=portion(80))
@given(ONE, st.data())
def test_the_least_objective_is_found(problems: list[Problem], data: st.DataObject) -> None:
    """Under budgets from both sides, a least score, and exclusions."""
    (problem,) = problems
    budgets = data.draw(limits(problems))
    listed = states(problems)
    excluded = data.draw(st.lists(st.sampled_from([each.picks for each in listed]), max_size=3, unique=True))
    min_score = data.draw(st.none() | st.sampled_from([state.score for state in listed]))
    numbers = st.integers(-5, 5)
    objective = [
        np.array(data.draw(st.lists(numbers, min_size=len(table), max_size=len(table))), np.float64)
        for table, _ in problem.blocks
    ]

    def value(picks: Picks) -> float:
        return float(sum(objective[block][list(chosen)].sum() for block, chosen in enumerate(picks)))

    good = [
        state.picks
        for state in listed
        if state.keeps(budgets)
        and state.picks not in excluded
        and (min_score is None or at_least(state.score, min_score))
    ]
    found = milp.minimise(problem, objective, budgets, min_score, excluded)
    assert (found is None) == (not good)
    if found is not None:
        assert found.picks in good
        least = min(map(value, good))
        assert found.value == value(found.picks) == least
        assert found.bound <= least
        assert found.bound == pytest.approx(least, abs=1e-6)


@settings(max_examples=portion(60))
@given(problem_lists(), st.data())
def test_solutions_come_best_first_with_a_bound(problems: list[Problem], data: st.DataObject) -> None:
    budgets = data.draw(limits(problems))
    stream = list(islice(milp.in_order(problems, budgets), 6))
    good = keeping(problems, budgets)
    scores = sorted((state.score for state in good), reverse=True)
    assert [solution.score for solution, _ in stream] == scores[: len(stream)]
    assert len(stream) == min(6, len(good))
    found = [(solution.problem, solution.picks) for solution, _ in stream]
    assert len(set(found)) == len(found)
    assert set(found) <= {(state.problem, state.picks) for state in good}
    for place, (solution, bound) in enumerate(stream):
        assert bound >= max(scores[place:])
        assert bound == pytest.approx(solution.score, rel=1e-9, abs=1e-6)
        assert solution.costs.tolist() == problems[solution.problem].cost(solution.picks).tolist()


@settings(max_examples=portion(60))
@given(problem_lists(), COLUMNS, COLUMNS, st.data())
def test_the_least_cost_is_lexicographic(
    problems: list[Problem], first: int, second: int, data: st.DataObject
) -> None:
    budgets = data.draw(limits(problems))
    min_score = data.draw(st.none() | st.sampled_from([state.score for state in states(problems)]))
    good = [one for one in keeping(problems, budgets) if min_score is None or at_least(one.score, min_score)]
    found = milp.least_cost(problems, budgets, (first, second), min_score)
    assert (found is None) == (not good)
    if found is not None:
        assert (found.problem, found.picks) in {(state.problem, state.picks) for state in good}
        cheapest = min((state.costs[first], state.costs[second]) for state in good)
        assert (found.costs[first], found.costs[second]) == cheapest


@settings(max_examples=portion(60))
@given(problem_lists(), COLUMNS, st.data())
def test_extremes_of_costs_within_budgets(problems: list[Problem], column: int, data: st.DataObject) -> None:
    budgets = data.draw(limits(problems))
    values = [state.costs[column] for state in keeping(problems, budgets)]
    engine = Proven(problems, Budgets(), column, programmes=True)
    assert engine.extreme("max", column, budgets) == min(values, default=None)
    assert engine.extreme("min", column, budgets) == max(values, default=None)


@settings(max_examples=portion(40))
@given(problem_lists(), COLUMNS, st.data())
def test_the_engine_answers_as_brute_force(problems: list[Problem], column: int, data: st.DataObject) -> None:
    """Best score, count of ties, upper bounds by problem, and a front on which nothing is dominated."""
    budgets = data.draw(limits(problems))
    engine, good = Proven(problems, budgets, column, programmes=True), keeping(problems, budgets)
    first = next(engine.in_order(), None)
    assert (first is None) == (not good)
    if first is None:
        assert engine.front() == []
        return
    best = max(state.score for state in good)
    assert first[0].score == best
    ties = engine.count(best)
    exact = sum(state.ways for state in good if at_least(state.score, best))
    assert ties.value == exact if ties.exact else ties.value <= exact
    peaks = engine.peaks()
    for state in good:
        if state.problem in peaks:
            assert at_least(peaks[state.problem], state.score)
    points = [(state.costs[column], state.score) for state in good]
    for point in engine.front():
        cost, score = int(point.costs[column]), point.score
        assert (cost, score) in points
        assert not [(c, s) for c, s in points if c <= cost and s >= score and (c, s) != (cost, score)]
    assert engine.front()[-1].score == best


def test_the_front_keeps_a_budget_of_nothing() -> None:
    """One candidate costs nothing, the other one unit: the least that a cost can be above the budget."""
    costs = np.zeros((2, len(COSTS)), np.int64)
    costs[0, 0] = 1
    table = CandidateTable(np.array([1.0, 0.0]), costs, (1, 1))
    budgets = Budgets().replaced("max", 0, 0)
    front = Proven([Problem(((table, 1),), costs[1])], budgets, 0, programmes=True).front()
    assert [(solution.score, int(solution.costs[0])) for solution in front] == [(0.0, 0)]
