"""Least pairs, and choices that are worth most at worst, against all that there are."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from zerolm.architecture import Floats
from zerolm.solvers.subsets import best_at_worst, least_pairs

SHAPES = [(groups, size) for groups in (1, 2, 3, 7) for size in range(2, 15) if groups * size <= 14]


def all_sets(members: int, count: int, groups: int) -> Iterator[list[int]]:
    """Yield all sets with as many of each group."""
    size = members // groups
    for chosen in combinations(range(members), count):
        if len({sum(each // size == group for each in chosen) for group in range(groups)}) == 1:
            yield list(chosen)


def drawn(members: int, seed: int, rank: int, noise: float) -> Floats:
    """Return products of few factors, as norms of outputs have them, with noise of any sign."""
    rng = np.random.default_rng(seed)
    factors = rng.gamma(2.0, 0.5, (members, rank))
    return np.asarray(factors @ factors.T + noise * rng.normal(size=(members, members)))


def value(form: Floats, members: Any) -> float:
    return float(form[np.ix_(members, members)].sum())


@settings(max_examples=60, deadline=None)
@given(some.data(), some.sampled_from(SHAPES), some.integers(0, 1 << 30))
def test_no_exchange_lowers_the_sum(data: some.DataObject, shape: tuple[int, int], seed: int) -> None:
    groups, size = shape
    count = groups * data.draw(some.integers(0, size))
    form = drawn(
        groups * size, seed, data.draw(some.integers(1, 3)), data.draw(some.sampled_from((0, 0.3, 9)))
    )
    if data.draw(some.booleans()):
        form = np.round(form)  # many are equal
    chosen = least_pairs(form, count, groups)
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    assert np.bincount(chosen // size, minlength=groups).tolist() == [count // groups] * groups
    others = [
        [into if member == out else member for member in chosen.tolist()]
        for out in chosen.tolist()
        for into in range(size * (out // size), size * (out // size + 1))
        if into not in chosen
    ]
    least = min((value(form, other) for other in others), default=np.inf)
    assert value(form, chosen) <= least + 1e-9 * np.abs(form).sum()


@pytest.mark.parametrize("noise", [0, 0.3, 3])
@pytest.mark.parametrize(("groups", "seed"), [(groups, seed) for groups in (1, 2) for seed in range(10)])
def test_no_other_set_of_a_small_layer_has_less(groups: int, seed: int, noise: float) -> None:
    form = drawn(12, seed, 2, noise)
    least = min(value(form, each) for each in all_sets(12, 6, groups))
    assert value(form, least_pairs(form, 6, groups)) == pytest.approx(least, abs=1e-9 * np.abs(form).sum())


@pytest.mark.parametrize(("count", "groups"), [(3, 2), (2, 5), (9, 1), (-2, 2)])
def test_what_cannot_be_divided_is_refused(count: int, groups: int) -> None:
    with pytest.raises(ValueError, match="cannot be divided"):
        least_pairs(np.eye(8), count, groups)


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        least_pairs(np.full((4, 4), np.inf), 2)


SMALL_SHAPES = [(groups, size) for groups in (1, 2, 3) for size in range(2, 11) if groups * size <= 10]


@settings(max_examples=40, deadline=None)
@given(some.data(), some.sampled_from(SMALL_SHAPES), some.integers(1, 3), some.integers(0, 1 << 30))
def test_none_is_better_at_worst(data: some.DataObject, shape: tuple[int, int], ways: int, seed: int) -> None:
    groups, size = shape
    each = data.draw(some.integers(1, size))
    worths = np.random.default_rng(seed).gamma(1.0, size=(ways, groups * size))
    best = best_at_worst(worths, each * groups, groups)
    choices = (
        list(chosen)
        for chosen in combinations(range(groups * size), each * groups)
        if all(sum(one // size == group for one in chosen) == each for group in range(groups))
    )
    most = max(worths[:, chosen].sum(1).min() for chosen in choices)
    assert (best.gap, best.value) == (0, pytest.approx(most, rel=1e-5))
    assert best.bound >= most * (1 - 1e-5)
    assert np.bincount(best.chosen // size, minlength=groups).tolist() == [each] * groups


def test_a_worth_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN or infinite"):
        best_at_worst(np.array([[1.0, np.nan]]), 1)
