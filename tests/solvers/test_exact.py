"""Dynamic programming and fronts of points against brute force: fronts, and solutions in order."""

from unittest.mock import patch

import numpy as np
import pytest
from brute import State, pareto, states
from drawn import problem_lists
from hypothesis import given
from hypothesis import strategies as st

from zerolm.costs import COSTS
from zerolm.solvers import exact
from zerolm.solvers.exact import Exact, Front, add_choice, prune, staircase, thinned
from zerolm.solvers.problem import UNBOUNDED, Problem, Solution
from zerolm.spaces import CandidateTable

COLUMNS = st.integers(0, len(COSTS) - 1)
POINTS = st.lists(st.tuples(st.integers(0, 9), st.integers(-9, 9)), min_size=1, max_size=8)


def pairs(front: Front) -> list[tuple[int, float]]:
    return list(zip(front.cost.tolist(), map(float, front.score.tolist()), strict=True))


def front_of(points: list[tuple[int, int]], unit: int = 1) -> Front:
    cost, score = np.array(points, np.int64).T
    return prune(unit * cost, score)


@pytest.mark.parametrize("dense_limit", [exact.DENSE_LIMIT, 0])
@given(a=POINTS, b=POINTS, unit=st.sampled_from((1, 64, 1000003)))
def test_one_more_choice_is_the_pruned_sum_of_all_pairs(
    dense_limit: int, a: list[tuple[int, int]], b: list[tuple[int, int]], unit: int
) -> None:
    """On a dense lattice of costs, and by sorting."""
    cost, score = np.array(b, np.int64).T
    with patch.object(exact, "DENSE_LIMIT", dense_limit):
        found = add_choice(front_of(a, unit), unit * cost, score)
    sums = [(unit * (c + d), float(s + t)) for c, s in a for d, t in b]
    assert pairs(found) == pareto(sums)


def test_a_lattice_too_long_to_be_dense_is_sorted() -> None:
    """Costs without a common divisor, so long that a dense array would not fit."""
    far = 10**15 + 7
    found = add_choice(front_of([(0, 0), (1, 3)]), np.array([0, far]), np.array([0, 5]))
    assert pairs(found) == [(0, 0.0), (1, 3.0), (far, 5.0), (far + 1, 8.0)]


@st.composite
def upper_limits(draw: st.DrawFn, problems: list[Problem], column: int) -> list[int]:
    """A limit for each problem: anything from infeasible to none."""
    made = []
    for problem in problems:
        low, high = (int(costs[column]) for costs in problem.extreme_costs)
        made.append(draw(st.integers(low, high) | st.sampled_from((UNBOUNDED, -1, low))))
    return made


def within(problems: list[Problem], column: int, bounds: list[int]) -> list[State]:
    return [state for state in states(problems) if state.costs[column] <= bounds[state.problem]]


def check(problems: list[Problem], solution: Solution) -> None:
    problem = problems[solution.problem]
    assert solution.score == problem.score(solution.picks)
    assert solution.costs.tolist() == problem.cost(solution.picks).tolist()
    assert [len(chosen) for chosen in solution.picks] == [count for _, count in problem.blocks]
    assert all(list(chosen) == sorted(chosen) for chosen in solution.picks)


@given(problem_lists(), COLUMNS, st.data())
def test_the_front_is_that_of_everything(problems: list[Problem], column: int, data: st.DataObject) -> None:
    bounds = data.draw(upper_limits(problems, column))
    front = Exact(problems, column, bounds).front()
    for solution in front:
        check(problems, solution)
    found = [(int(solution.costs[column]), solution.score) for solution in front]
    listed = [(state.costs[column], state.score) for state in within(problems, column, bounds)]
    assert found == pareto(listed)


@given(problem_lists(), COLUMNS, st.data())
def test_solutions_come_once_best_first(problems: list[Problem], column: int, data: st.DataObject) -> None:
    bounds = data.draw(upper_limits(problems, column))
    stream = list(Exact(problems, column, bounds).in_order())
    for solution in stream:
        check(problems, solution)
    expected = within(problems, column, bounds)
    assert [solution.score for solution in stream] == sorted((s.score for s in expected), reverse=True)
    found = [(solution.problem, solution.picks) for solution in stream]
    assert sorted(found) == sorted((state.problem, state.picks) for state in expected)


@given(problem_lists(), COLUMNS, st.data())
def test_chosen_problems_are_streamed(problems: list[Problem], column: int, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(problems) - 1), min_size=1, unique=True))
    solver = Exact(problems, column, [UNBOUNDED] * len(problems))
    expected = [state for state in states(problems) if state.problem in chosen]
    stream = list(solver.in_order(chosen))
    assert sorted((s.problem, s.picks) for s in stream) == sorted((s.problem, s.picks) for s in expected)
    front = [(int(s.costs[column]), s.score) for s in solver.front(chosen)]
    assert front == pareto([(state.costs[column], state.score) for state in expected])


@given(problem_lists(), COLUMNS, st.data())
def test_the_best_score_of_each_problem(problems: list[Problem], column: int, data: st.DataObject) -> None:
    bounds = data.draw(upper_limits(problems, column))
    solver, expected = Exact(problems, column, bounds), within(problems, column, bounds)
    for index in range(len(problems)):
        scores = [state.score for state in expected if state.problem == index]
        best = solver.best_score(index)
        assert (best is None) == (not scores)
        if best is not None:
            assert best == pytest.approx(max(scores), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(("step", "points"), [(1e-6, 3), (1e-13, 1)])
def test_a_front_rises_by_more_than_noise(step: float, points: int) -> None:
    costs = np.zeros((3, len(COSTS)), np.int64)
    costs[:, 0] = (1, 2, 3)
    table = CandidateTable(np.array([1.0, 1.0 + step, 1.0 + 2 * step]), costs, (1, 1, 1))
    for blocks in (((table, 1),), ((table, 1), (table, 1))):
        front = Exact([Problem(blocks, costs[0])], 0, [UNBOUNDED]).front()
        assert len(front) == (points if len(blocks) == 1 else 2 * points - 1)


WALKED = st.lists(st.tuples(st.integers(0, 9), st.integers(-9, 9)), max_size=30)


@given(WALKED)
def test_the_front_holds_what_no_cheaper_point_reaches(points: list[tuple[int, int]]) -> None:
    cost, score = (np.array([point[i] for point in points], np.int64) for i in range(2))
    front = staircase(cost, score.astype(np.float64))
    assert [(int(cost[i]), float(score[i])) for i in front] == pareto(zip(cost.tolist(), score, strict=True))
    for i in front:  # of equals the first
        assert i == np.flatnonzero((cost == cost[i]) & (score == score[i]))[0]


def test_a_rise_below_one_in_10_12_is_no_rise() -> None:
    score = np.array([1.0, 1.0 + 1e-13, 1.0 + 1e-11])
    assert staircase(np.arange(3), score).tolist() == [0, 2]
    assert staircase(np.arange(3), -score[::-1]).tolist() == [0, 1]


@given(st.integers(0, 50), st.integers(2, 60))
def test_thinned_points_keep_both_ends(count: int, most: int) -> None:
    points = np.arange(count)
    few = thinned(points, most)
    assert len(set(few.tolist())) == len(few) == min(count, most)
    assert set(few.tolist()) <= set(range(count))
    assert (few.tolist()[:1], few.tolist()[-1:]) == (points.tolist()[:1], points.tolist()[-1:])
    assert thinned(points, None) is points
