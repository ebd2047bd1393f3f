"""Enumeration against brute force, with the number of architectures behind every state."""

from __future__ import annotations

import math
from unittest.mock import patch

import numpy as np
import pytest
from brute import states
from catalogue import SETTINGS, catalogue
from drawn import problem_lists
from hypothesis import given
from hypothesis import strategies as st

from zerolm.costs import COSTS, CostModel
from zerolm.scores import make_score
from zerolm.solvers import exhaustive, search
from zerolm.solvers.exhaustive import States, count_states
from zerolm.solvers.problem import Problem, compile_problems
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


@pytest.mark.parametrize("name", SETTINGS)
def test_the_states_of_a_space_stand_for_all_its_architectures(name: str) -> None:
    score = make_score("geo").terms
    problems = compile_problems(list(catalogue(name).space.backbones()), score, CostModel())
    found = States.of(problems)
    assert sum(int(ways) for ways in found.ways) == len(catalogue(name).architectures)


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
