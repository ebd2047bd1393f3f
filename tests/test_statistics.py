"""Rank agreement against scipy, and against tie-breaking one by one."""

from __future__ import annotations

import math
from itertools import groupby, permutations, product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from zerolm.architecture import Floats
from zerolm.statistics import agreement, tie_ranks

Pairs = list[tuple[int, int]]
PAIRS = st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=2, max_size=40)


def columns(pairs: Pairs) -> tuple[Floats, Floats]:
    x, y = np.array(pairs, np.float64).T
    return x, y


@given(PAIRS)
def test_tau_and_rho_equal_scipy(pairs: Pairs) -> None:
    x, y = columns(pairs)
    assume(np.ptp(x) > 0 and np.ptp(y) > 0)
    found = agreement(x, y)
    assert found.n == len(pairs)
    assert found.tau == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12)
    assert found.rho == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def tie_breaks(x: Floats) -> list[Floats]:
    """All orders that ``x`` becomes when its ties are broken."""
    order = np.argsort(x, kind="stable")
    groups = [list(group) for _, group in groupby(order.tolist(), key=lambda i: x[i])]
    broken = []
    for choice in product(*(permutations(group) for group in groups)):
        ranks = np.empty(len(x))
        ranks[[i for group in choice for i in group]] = np.arange(len(x))
        broken.append(ranks)
    return broken


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=6))
def test_tau_with_random_ties_is_the_mean_over_all_tie_breaks(pairs: Pairs) -> None:
    x, y = columns(pairs)
    assume(np.ptp(x) > 0 and np.ptp(y) > 0)
    taus = [stats.kendalltau(broken, y).statistic for broken in tie_breaks(x)]
    assert agreement(x, y).tau_random_ties == pytest.approx(np.mean(taus), abs=1e-12)


@given(PAIRS)
def test_breaking_ties_at_random_never_raises_tau(pairs: Pairs) -> None:
    x, y = columns(pairs)
    assume(np.ptp(x) > 0 and np.ptp(y) > 0)
    found = agreement(x, y)
    assert abs(found.tau_random_ties) <= abs(found.tau) + 1e-12


@given(PAIRS)
def test_agreement_changes_sign_with_the_score_and_with_nothing_else(pairs: Pairs) -> None:
    x, y = columns(pairs)
    assume(np.ptp(x) > 0 and np.ptp(y) > 0)
    found = agreement(x, y)
    assert agreement(3.0 * x**3 + 7.0, np.exp(y)) == found
    opposite = agreement(-x, y)
    expected = [-found.tau, -found.tau_random_ties, -found.rho]
    assert [opposite.tau, opposite.tau_random_ties, opposite.rho] == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=8), st.booleans())
def test_a_constant_side_has_no_agreement(values: list[int], swap: bool) -> None:
    varying, constant = np.array(values, np.float64), np.full(len(values), 2.5)
    found = agreement(constant, varying) if swap else agreement(varying, constant)
    assert math.isnan(found.tau)
    assert math.isnan(found.tau_random_ties)
    assert math.isnan(found.rho)


@given(st.lists(st.integers(-50, 50), max_size=30), st.integers(0, 2**32 - 1))
def test_floating_point_noise_breaks_no_tie(values: list[int], seed: int) -> None:
    exact = np.array(values, np.float64)
    noise = np.random.default_rng(seed).uniform(-4e-10, 4e-10, len(values))
    expected = np.searchsorted(np.unique(exact), exact)
    assert tie_ranks(exact).tolist() == expected.tolist()
    assert tie_ranks(exact * (1.0 + noise)).tolist() == expected.tolist()
    assert tie_ranks(1e12 * exact * (1.0 + noise)).tolist() == expected.tolist()


def test_the_tolerance_is_relative_to_the_larger_magnitude() -> None:
    assert tie_ranks(np.array([1.0, 1.0 + 0.9e-9, 1.0 + 3e-9])).tolist() == [0, 0, 1]
    assert tie_ranks(np.array([-1e6, -1e6 - 0.9e-3, -1e6 - 3e-3])).tolist() == [1, 1, 0]
    assert tie_ranks(np.array([0.0, 1e-300])).tolist() == [0, 1]
    assert tie_ranks(np.array([1.0, 1.0 + 1e-15]), tolerance=0.0).tolist() == [0, 1]


def test_ties_within_the_tolerance_count_as_ties() -> None:
    result = np.array([3.0, 1.0, 2.0, 4.0])
    exact, noisy = np.array([1.0, 1.0, 2.0, 2.0]), np.array([1.0, 1.0 + 1e-12, 2.0 - 1e-12, 2.0])
    assert agreement(noisy, result) == agreement(exact, result)


def test_only_vectors_of_one_length_pair() -> None:
    with pytest.raises(ValueError, match="do not pair"):
        agreement(np.zeros(3), np.zeros(4))
    with pytest.raises(ValueError, match="do not pair"):
        agreement(np.zeros((2, 2)), np.zeros((2, 2)))
