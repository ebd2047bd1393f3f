"""The front of a list of points, beside a list that is walked."""

from __future__ import annotations

import numpy as np
from brute import pareto
from hypothesis import given
from hypothesis import strategies as st

from zerolm.solvers.exact import staircase, thinned

POINTS = st.lists(st.tuples(st.integers(0, 9), st.integers(-9, 9)), max_size=30)


@given(POINTS)
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
    assert few.tolist()[:1] == points.tolist()[:1]
    assert few.tolist()[-1:] == points.tolist()[-1:]
    assert thinned(points, None) is points
