"""Enumeration, and counting in closed form, against brute force."""

import math
from unittest.mock import patch

import numpy as np
import pytest
from brute import State, states
from catalogue import catalogue
from drawn import limits, problem_lists
from hypothesis import given
from hypothesis import strategies as st

from zerolm.costs import COSTS, CostModel
from zerolm.scores import make_score
from zerolm.solvers import exhaustive, proven, search
from zerolm.solvers.exhaustive import States, count_states
from zerolm.solvers.problem import Budgets, Problem, at_least, compile_problems
from zerolm.solvers.proven import count_at_least, lattice_of
from zerolm.spaces import CandidateTable, make_space


@given(problem_lists())
def test_states_equal_brute_force(problems: list[Problem]) -> None:
    found, expected = States.of(problems), states(problems)
    assert len(found.score) == len(expected) == count_states(problems)
    listed = {(state.problem, state.picks): state for state in expected}
    for i in range(len(found.score)):
        solution = found.solution(i)
        state = listed.pop((solution.problem, solution.picks))
        assert found.score[i] == solution.score == state.score
        assert tuple(found.costs[i].tolist()) == tuple(solution.costs.tolist()) == state.costs
        assert int(found.ways[i]) == state.ways
    assert not listed


@given(st.lists(st.integers(1, 9) | st.integers(1, 10**6), min_size=1, max_size=3), st.integers(-2, 2))
def test_the_ways_of_all_states_are_all_architectures(multiplicity: list[int], beyond: int) -> None:
    """However many there are: around the largest 64-bit integer, and beyond it."""
    count = min(max(1, int(63 / math.log2(sum(multiplicity) + 1)) + beyond), 40)
    zeros = np.zeros(len(multiplicity))
    table = CandidateTable(zeros, np.zeros((len(zeros), len(COSTS)), np.int64), tuple(multiplicity))
    found = States.of([Problem(((table, count),), np.zeros(len(COSTS), np.int64))])
    assert sum(int(ways) for ways in found.ways) == sum(multiplicity) ** count


@pytest.mark.parametrize("depth", [39, 40, 60])
def test_ties_of_a_deep_space_are_all_its_architectures(depth: int) -> None:
    """One width for every layer, three head counts that no score sees: 3^depth ways."""
    space = make_space("gpt2", depth=[depth], hidden=[128], ffn=[512], d_embed=[128], div_val=[1])
    found = search(space, "geo", compare=False)
    assert found.plateau.ties.value == found.plateau.near_ties.value == space.size() == 3**depth
    assert found.plateau.ties.exact


def test_too_many_states_are_refused() -> None:
    score = make_score("geo").terms
    problems = compile_problems(list(catalogue("gpt2").space.backbones()), score, CostModel())
    with (
        patch.object(exhaustive, "STATES_LIMIT", count_states(problems) - 1),
        pytest.raises(
            ValueError, match=r"method 'exhaustive' would visit .* states, more than .*; use exact or milp"
        ),
    ):
        States.of(problems)


@st.composite
def lattice_problems(draw: st.DrawFn) -> list[Problem]:
    """One block a problem, whose score and costs are affine functions of one integer."""
    problems = []
    for _ in range(draw(st.integers(1, 2))):
        places = np.array(draw(st.lists(st.integers(0, 6), min_size=1, max_size=5)), np.int64)
        slopes = draw(st.lists(st.sampled_from((-3, 0, 1, 64)), min_size=len(COSTS), max_size=len(COSTS)))
        first, slope = draw(st.sampled_from((-2.0, 0.0, 1.5))), draw(st.sampled_from((-0.5, 0.0, 1.0)))
        table = CandidateTable(
            np.array(first + slope * places),
            np.stack([500 + rise * places for rise in slopes], axis=1),
            tuple(draw(st.integers(1, 4)) for _ in places),
        )
        own = np.array(draw(st.lists(st.integers(0, 9), min_size=len(COSTS), max_size=len(COSTS))), np.int64)
        factor, offset = draw(st.sampled_from((0.5, 1.0, 2.0))), draw(st.sampled_from((0.0, -3.0)))
        problems.append(Problem(((table, draw(st.integers(1, 4))),), own, factor, offset))
    return problems


def counted(listed: list[State], budgets: Budgets, threshold: float) -> int:
    good = [state for state in listed if state.keeps(budgets) and at_least(state.score, threshold)]
    return sum(state.ways for state in good)


@st.composite
def questions(draw: st.DrawFn, problems: list[Problem]) -> tuple[Budgets, list[int], float]:
    """Budgets, the columns they concern, and a threshold at or between the scores."""
    budgets = draw(limits(problems, columns=2))
    columns = sorted({column for _, column in budgets.active(problems)})
    threshold = draw(st.sampled_from([state.score for state in states(problems)]))
    return budgets, columns, threshold + draw(st.sampled_from((-0.01, 0.0, 0.01)))


@given(lattice_problems(), st.data())
def test_lattices_are_counted_as_by_brute_force(problems: list[Problem], data: st.DataObject) -> None:
    budgets, columns, threshold = data.draw(questions(problems))
    found = count_at_least(problems, budgets, columns, threshold)
    if found is None:  # the score is on no lattice of these costs: several scores at one cost
        assert any(lattice_of(table, columns) is None for problem in problems for table, _ in problem.blocks)
    else:
        assert found == counted(states(problems), budgets, threshold)


@given(lattice_problems())
def test_whatever_varies_with_the_integer_is_on_its_lattice(problems: list[Problem]) -> None:
    for problem in problems:
        ((table, _),) = problem.blocks
        columns = np.flatnonzero(np.ptp(table.costs, axis=0)).tolist()
        if columns:
            assert lattice_of(table, columns) is not None


@given(problem_lists(), st.data())
def test_other_tables_are_counted_exactly_or_not_at_all(problems: list[Problem], data: st.DataObject) -> None:
    budgets, columns, threshold = data.draw(questions(problems))
    found = count_at_least(problems, budgets, columns, threshold)
    if any(len(problem.blocks) > 1 for problem in problems):
        assert found is None
    if found is not None:
        assert found == counted(states(problems), budgets, threshold)


def test_a_table_off_every_lattice_is_not_counted() -> None:
    costs = np.zeros((3, len(COSTS)), np.int64)
    costs[:, 0] = (1, 2, 3)
    bent = CandidateTable(np.array([0.0, 1.0, 4.0]), costs, (1, 1, 1))
    assert lattice_of(bent, [0]) is None
    assert count_at_least([Problem(((bent, 2),), costs[0])], Budgets(), [0], 1.0) is None
    straight = CandidateTable(np.array([0.0, 1.0, 2.0]), costs, (1, 1, 1))
    assert count_at_least([Problem(((straight, 2),), costs[0])], Budgets(), [0], 1.0) == 8


def test_a_sum_with_too_many_terms_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = np.zeros((2, len(COSTS)), np.int64)
    costs[1] = 1
    problem = Problem(((CandidateTable(np.array([0.0, 1.0]), costs, (1, 1)), 5),), costs[0])
    assert count_at_least([problem], Budgets(), [], 5.0) == 1
    monkeypatch.setattr(proven, "MAX_TERMS", 5)
    assert count_at_least([problem], Budgets(), [], 5.0) is None


def test_ties_of_the_whole_published_space_are_counted_exactly() -> None:
    """At depth 16 and width 1024 geo has one best layer: 3 head counts a layer, 9 embeddings."""
    found = search("gpt2", "geo", top=1, compare=False)
    assert found.certificate.method == "exact"
    assert found.plateau.ties.exact
    assert found.plateau.ties.value == 9 * 3**16
    assert set(found.best[0].architecture.choices["d_inner"]) == {4096}
