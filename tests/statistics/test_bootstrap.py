"""The bootstrap against tables that are really resampled, one by one."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from zerolm.architecture import Floats
from zerolm.statistics import Bootstrap, agreement, enough, gain, interval

ROWS = st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=1, max_size=15)


def by_pairs(x: Floats, y: Floats, copies: list[int]) -> tuple[float, float]:
    """tau-b and tau with random ties of a resample; copies of one architecture make no pair."""
    difference = pairs = untied_x = untied_y = 0
    for i, j in combinations(copies, 2):
        if i != j:
            a, b = np.sign(x[i] - x[j]), np.sign(y[i] - y[j])
            difference, pairs = difference + a * b, pairs + 1
            untied_x, untied_y = untied_x + abs(a), untied_y + abs(b)
    if not untied_x or not untied_y:
        return math.nan, math.nan
    return difference / math.sqrt(untied_x * untied_y), difference / math.sqrt(pairs * untied_y)


@given(ROWS, st.integers(0, 99))
def test_the_quadratic_forms_equal_resampled_tables(rows: list[tuple[int, int]], seed: int) -> None:
    x, y = np.array(rows, np.float64).T
    bootstrap = Bootstrap(y, draws=7, seed=seed)
    found = bootstrap.resample(x)
    assert found.observed == agreement(x, y) or math.isnan(found.observed.tau)
    assert np.all(bootstrap.counts.sum(axis=0) == len(rows))
    for draw, counts in enumerate(bootstrap.counts.T):
        copies = np.repeat(np.arange(len(rows)), counts.astype(int)).tolist()
        tau, tau_random_ties = by_pairs(x, y, copies)
        assert found.tau[draw] == pytest.approx(tau, abs=1e-12, nan_ok=True)
        assert found.tau_random_ties[draw] == pytest.approx(tau_random_ties, abs=1e-12, nan_ok=True)
        if np.ptp(x[copies]) and np.ptp(y[copies]):
            rho = stats.spearmanr(x[copies], y[copies]).statistic
            assert found.rho[draw] == pytest.approx(rho, abs=1e-12)
        else:
            assert math.isnan(found.rho[draw])


def columns(n: int, seed: int = 0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    quality = rng.integers(0, n, n).astype(np.float64)
    return quality, quality + rng.normal(0.0, n / 4, n)


def test_single_precision_is_exact_as_long_as_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = columns(300)
    single = Bootstrap(y, draws=50)
    monkeypatch.setattr("zerolm.statistics.bootstrap.EXACT_IN_SINGLE", 0)
    double = Bootstrap(y, draws=50)
    assert (single.counts.dtype, double.counts.dtype) == (np.float32, np.float64)
    a, b = single.resample(x), double.resample(x)
    assert np.array_equal(a.tau, b.tau)
    assert np.array_equal(a.tau_random_ties, b.tau_random_ties)
    assert np.array_equal(a.rho, b.rho)


def test_undefined_draws_are_left_out() -> None:
    assert interval(np.array([np.nan, 0.0, 1.0]), level=0.5) == (0.25, 0.75)
    assert interval(np.array([np.nan, *range(101)])) == pytest.approx((2.5, 97.5))
    assert all(math.isnan(bound) for bound in interval(np.full(3, np.nan)))


def test_seeds_reproduce() -> None:
    x, y = columns(20)
    first, again, other = (Bootstrap(y, 10, seed).resample(x).tau for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_score_pairs_with_the_result() -> None:
    with pytest.raises(ValueError, match="do not pair"):
        Bootstrap(np.zeros(3)).resample(np.zeros(4))


def test_too_few_are_not_resampled_and_have_no_interval() -> None:
    assert [enough(n, 100) for n in (1, 7, 8, 500)] == [0, 0, 100, 100]
    x, y = columns(7)
    found = Bootstrap(y, enough(7, 100)).resample(x)
    assert found.observed == agreement(x, y)
    assert np.isnan(interval(found.tau)).all()
    assert np.isnan(gain(found, found)[1:]).all()
