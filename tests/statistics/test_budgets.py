"""Regret and overlap against every way to break ties, one by one."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.architecture import Floats, Ints
from zerolm.statistics import budget_ladder, random_regret, regret, regret_curve, top_overlap

ROWS = st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=6)
K = st.integers(1, 7)


def orders(values: Floats) -> list[list[int]]:
    """Every order of the values, highest first, that breaks their ties somehow."""
    indices = range(len(values))
    return [list(p) for p in permutations(indices) if all(np.diff(values[list(p)]) <= 0)]


@given(ROWS, K)
def test_regret_is_the_mean_over_all_tie_breaks(rows: list[tuple[int, int, int]], k: int) -> None:
    score, result, cost = np.array(rows, np.float64).T
    curve = regret_curve(score, result, cost, k)
    for budget, found in zip(budget_ladder(cost), curve, strict=True):
        kept = np.flatnonzero(cost <= budget)
        losses = [result[kept].max() - result[kept][order[:k]].max() for order in orders(score[kept])]
        assert found == pytest.approx(np.mean(losses), abs=1e-12)
    assert regret(score, result, cost, k) == pytest.approx(np.mean(curve))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=5), K)
def test_overlap_is_the_mean_over_all_tie_breaks(rows: list[tuple[int, int]], k: int) -> None:
    score, result = np.array(rows, np.float64).T
    shares = [len(set(a[:k]) & set(b[:k])) / min(k, len(rows)) for a in orders(score) for b in orders(result)]
    assert top_overlap(score, result, k) == pytest.approx(np.mean(shares), abs=1e-12)


def test_a_random_choice_is_the_mean_of_random_choices() -> None:
    rng = np.random.default_rng(0)
    result, cost = rng.normal(size=(2, 30))
    for k in (1, 5):
        chosen = [regret(rng.permutation(30).astype(np.float64), result, cost, k) for _ in range(2000)]
        assert random_regret(result, cost, k) == pytest.approx(np.mean(chosen), abs=0.05)


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=60))
def test_the_ladder_is_numpys_and_its_steps_fall_on_costs(cost: list[int]) -> None:
    values: Ints = np.array(cost, np.int64)
    ladder = budget_ladder(values)
    assert ladder == pytest.approx(np.quantile(values, np.arange(2, 21) / 20), rel=1e-12)
    exact = [(len(cost) - 1) * step for step in range(2, 21)]
    on_costs = [budget for budget, position in zip(ladder, exact, strict=True) if position % 20 == 0]
    assert set(on_costs) <= set(values.tolist())


def test_costs_pair_with_scores() -> None:
    ones = np.ones(3)
    with pytest.raises(ValueError, match="do not pair"):
        regret(ones, ones, np.ones(2), 1)
