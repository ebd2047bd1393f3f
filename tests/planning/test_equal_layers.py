"""Plans by totals against all combinations of sizes, with one, two and three kinds of units."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.architecture import Ints
from zerolm.costs import COSTS
from zerolm.planning.equal_layers import Side, best_sizes, fits
from zerolm.solvers.problem import Budgets

STEPS = st.lists(st.integers(1, 4), min_size=0, max_size=3)
UNITS = st.lists(st.integers(0, 9), min_size=len(COSTS), max_size=len(COSTS))


@st.composite
def sides(draw: st.DrawFn, layers: int) -> Side:
    """Sizes at uneven distances, any worth with many ties, a price for each unit."""
    sizes = np.cumsum([draw(st.integers(1, 3)), *draw(STEPS)])
    price = np.array(draw(UNITS))
    values = st.lists(st.integers(-3, 3), min_size=len(sizes), max_size=len(sizes))
    worth = np.array([draw(values) for _ in range(layers)], float) / 4
    return Side(sizes, (sizes - sizes[0])[:, None] * price, worth)


def costs_of(sides_: Sequence[Side], picks: Sequence[Ints], fixed: Ints) -> Ints:
    return fixed + sum(
        side.costs[list(chosen)].sum(axis=0) for side, chosen in zip(sides_, picks, strict=True)
    )


def worth_of(sides_: Sequence[Side], picks: Sequence[Ints]) -> float:
    return sum(
        float(side.scores[np.arange(len(side.scores)), list(chosen)].sum())
        for side, chosen in zip(sides_, picks, strict=True)
    )


@given(data=st.data())
def test_nothing_within_the_budgets_is_better(data: st.DataObject) -> None:
    kinds = data.draw(st.integers(1, 3))
    layers = data.draw(st.integers(1, 3 if kinds < 3 else 2))
    both = [data.draw(sides(layers)) for _ in range(kinds)]
    fixed = np.array(data.draw(UNITS))
    limits = data.draw(
        st.dictionaries(st.sampled_from([f"max_{name}" for name in COSTS]), st.integers(0, 120))
    )
    budgets = Budgets.of(limits)
    assert fits(both)
    every = itertools.product(*(itertools.product(range(len(side.sizes)), repeat=layers) for side in both))
    allowed = [picks for picks in every if budgets.allow(costs_of(both, picks, fixed))]  # type: ignore[arg-type]
    found = best_sizes(both, fixed, budgets)
    if not allowed:
        assert found is None
        return
    assert found is not None
    best = max(worth_of(both, picks) for picks in allowed)  # type: ignore[arg-type]
    picks, score = found
    assert score == pytest.approx(best)
    assert worth_of(both, picks) == pytest.approx(best)
    spent = costs_of(both, picks, fixed)
    assert budgets.allow(spent)
    params = COSTS.index("params")
    cheapest = min(
        costs_of(both, picks, fixed)[params]  # type: ignore[arg-type]
        for picks in allowed
        if worth_of(both, picks) >= best - 1e-12  # type: ignore[arg-type]
    )
    assert spent[params] == cheapest


def test_of_equal_scores_the_one_with_the_fewest_parameters_is_taken() -> None:
    """Whichever kind of units comes first: one unit of the dear kind is worth as much as one of the other."""
    sizes, worth = np.array([1, 2]), np.array([[0.0, 1.0]])
    dear, cheap = (Side(sizes, np.outer([0, 1], [price] * len(COSTS)), worth) for price in (5, 1))
    budgets = Budgets.of({"max_params": 5})
    for both, wanted in (((dear, cheap), [[0], [1]]), ((cheap, dear), [[1], [0]])):
        picked = best_sizes(both, np.zeros(len(COSTS), np.int64), budgets)
        assert picked is not None
        assert [places.tolist() for places in picked[0]] == wanted
        assert picked[1] == 1.0


def test_prices_that_are_no_multiple_of_the_size_are_left_to_the_search() -> None:
    sizes, worth = np.array([1, 2, 3]), np.zeros((2, 3))
    even, odd = (np.array(column)[:, None] * np.ones(len(COSTS), int) for column in ([0, 4, 8], [0, 4, 9]))
    assert fits([Side(sizes, even, worth), Side(sizes, even, worth)])
    assert not fits([Side(sizes, even, worth), Side(sizes, odd, worth)])
