"""Ordered pairs against every pair, one by one."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.architecture import Floats, Ints
from zerolm.statistics import OrderedPairs, ordered_pairs, pairs_of_similar_cost, pairs_within_groups

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


def all_pairs(n: int) -> Ints:
    return pairs_within_groups(["all"] * n)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=12))
def test_share_and_its_opposite_add_up(rows: list[tuple[int, int]]) -> None:
    score, result = np.array(rows, np.float64).T
    ordered, turned = (ordered_pairs(s, result, all_pairs(len(rows))) for s in (score, -score))
    assert (ordered.n, ordered.tied) == (turned.n, turned.tied)
    if ordered.n:
        assert ordered.share + turned.share == pytest.approx(1.0)
    else:
        assert math.isnan(ordered.share)


def test_rounding_breaks_no_tie() -> None:
    score = np.array([1.0, 1.0 + 1e-12])
    assert ordered_pairs(score, np.array([1.0, 2.0]), all_pairs(2)) == OrderedPairs(0, 1, 1)


def test_without_pairs_there_is_no_share() -> None:
    pairs = pairs_within_groups([None, None, "a"])
    assert pairs.shape == (0, 2)
    assert math.isnan(ordered_pairs(np.arange(3.0), np.arange(3.0), pairs).share)
