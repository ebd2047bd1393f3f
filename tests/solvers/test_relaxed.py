"""Bounds by shared prices: never below the best, and for a tightened problem the linear relaxation's."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
from brute import keeping
from drawn import limits, problem_lists
from hypothesis import given, settings
from hypothesis import strategies as st
from portion import portion
from scipy.optimize import LinearConstraint, milp

from zerolm.solvers import milp as programmes
from zerolm.solvers.problem import UNBOUNDED, Budgets, Problem
from zerolm.solvers.relaxed import Relaxation


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
def test_a_tightened_bound_is_that_of_the_linear_relaxation(
    problems: list[Problem], data: st.DataObject
) -> None:
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
    fits = relaxed.bounds > -np.inf
    for index in np.flatnonzero(fits).tolist():
        relaxed.tighten(index)
    possible = relaxed.bounds > -np.inf
    before = relaxed.bounds.copy()
    other = relaxed.within(second)
    again = other.within(first)
    assert (relaxed.bounds == before).all()
    assert (again.bounds[possible] == before[possible]).all()


@settings(max_examples=portion(60))
@given(problem_lists(), st.data())
def test_what_is_known_of_the_problems_changes_no_answer(
    problems: list[Problem], data: st.DataObject
) -> None:
    budgets = data.draw(limits(problems))
    relaxed = Relaxation(problems, data.draw(limits(problems)))
    for index in data.draw(st.lists(st.integers(0, len(problems) - 1), max_size=3)):
        relaxed.tighten(index)
    stream = programmes.in_order(problems, budgets, relaxed.within(budgets))
    good = sorted((state.score for state in keeping(problems, budgets)), reverse=True)
    assert [solution.score for solution, _ in islice(stream, 4)] == good[:4]
