"""Rank agreement against scipy, and against tie-breaking one by one."""

import math
from itertools import combinations, groupby, permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from zerolm.architecture import Floats
from zerolm.statistics import (
    OrderedPairs,
    agreement,
    kendall,
    ordered_pairs,
    pairs_of_similar_cost,
    pairs_within_groups,
    spearman,
    tie_ranks,
    within_budget,
)

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


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=8), st.booleans())
def test_a_constant_side_has_no_agreement(values: list[int], swap: bool) -> None:
    varying, constant = np.array(values, np.float64), np.full(len(values), 2.5)
    found = agreement(constant, varying) if swap else agreement(varying, constant)
    assert np.isnan([found.tau, found.tau_random_ties, found.rho]).all()


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


@pytest.mark.parametrize(
    ("measure", "x", "y"),
    [(agreement, 3, 4), (agreement, (2, 2), (2, 2)), (kendall, 3, 3), (spearman, (2, 3), 4)],
)
def test_only_vectors_of_one_length_pair(measure: Any, x: Any, y: Any) -> None:
    with pytest.raises(ValueError, match="do not pair"):
        measure(np.zeros(x), np.zeros(y))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_only_finite_numbers_agree(bad: float) -> None:
    values = np.array([1.0, bad, 2.0])
    for score, result in ((values, np.arange(3.0)), (np.arange(3.0), values)):
        with pytest.raises(ValueError, match="finite"):
            agreement(score, result)


TABLES = st.integers(2, 12).flatmap(
    lambda n: st.lists(st.lists(st.integers(-3, 3), min_size=n, max_size=n), min_size=2, max_size=6)
)


@given(TABLES)
def test_many_scores_agree_as_one_by_one(table: list[list[int]]) -> None:
    result, *scores = np.array(table, np.float64)
    each = [agreement(score, result) for score in scores]
    assert np.array_equal(kendall(np.array(scores), result), [a.tau for a in each], equal_nan=True)
    assert np.array_equal(spearman(np.array(scores), result), [a.rho for a in each], equal_nan=True)


def test_many_pairs_are_counted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    score, result = np.random.default_rng(0).integers(0, 9, (2, 40)).astype(np.float64)
    whole = agreement(score, result)
    monkeypatch.setattr("zerolm.statistics.correlations.CELLS", 100)
    assert agreement(score, result) == whole


TRIPLES = st.lists(st.tuples(*[st.integers(0, 6)] * 3), min_size=2, max_size=40)


@given(TRIPLES, st.integers(1, 12))
def test_agreement_within_bins_counts_their_pairs_only(rows: list[tuple[int, int, int]], bins: int) -> None:
    score, result, cost = np.array(rows, np.float64).T
    edges = np.quantile(cost, np.arange(1, bins) / bins)
    place = [sum(c > edge + 1e-9 for edge in edges) for c in cost]
    difference = untied_x = untied_y = 0
    for i, j in combinations(range(len(rows)), 2):
        if place[i] == place[j]:
            x, y = np.sign(score[i] - score[j]), np.sign(result[i] - result[j])
            difference, untied_x, untied_y = difference + x * y, untied_x + abs(x), untied_y + abs(y)
    expected = difference / math.sqrt(untied_x * untied_y) if untied_x and untied_y else math.nan
    assert within_budget(score, result, cost, bins) == pytest.approx(expected, abs=1e-12, nan_ok=True)


ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 40), st.sampled_from(["a", "b", None])),
    min_size=1,
    max_size=9,
)


def one_by_one(score: Floats, result: Floats, pairs: list[tuple[int, int]]) -> OrderedPairs:
    judged = [(score[i] - score[j], result[i] - result[j]) for i, j in pairs if result[i] != result[j]]
    return OrderedPairs(sum(a * b > 0 for a, b in judged), sum(a == 0 for a, _ in judged), len(judged))


@given(ROWS, st.sampled_from([0.0, 0.05, 0.25, 0.5]))
def test_every_pair_is_counted(rows: list[tuple[int, int, int, str | None]], share: float) -> None:
    columns = list(zip(*rows, strict=True))
    score, result, cost = (np.array(column, np.float64) for column in columns[:3])
    every = list(combinations(range(len(rows)), 2))
    grouped = [(i, j) for i, j in every if columns[3][i] == columns[3][j] is not None]
    similar = [(i, j) for i, j in every if abs(cost[i] - cost[j]) <= share * max(cost[i], cost[j])]
    for pairs, expected in (
        (pairs_within_groups(columns[3]), grouped),
        (pairs_of_similar_cost(cost, share), similar),
    ):
        assert [tuple(pair) for pair in pairs.tolist()] == expected
        assert ordered_pairs(score, result, pairs) == one_by_one(score, result, expected)


def test_rounding_breaks_no_tie() -> None:
    score = np.array([1.0, 1.0 + 1e-12])
    assert ordered_pairs(score, np.array([1.0, 2.0]), np.array([[0, 1]])) == OrderedPairs(0, 1, 1)


def test_without_pairs_there_is_no_share() -> None:
    pairs = pairs_within_groups([None, None, "a"])
    assert pairs.shape == (0, 2)
    assert math.isnan(ordered_pairs(np.arange(3.0), np.arange(3.0), pairs).share)
