"""The sets of least pairs against all that there are, and their bounds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from zerolm.architecture import Floats
from zerolm.solvers.quadratic import LeastPairs, least_pairs

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


@settings(max_examples=60, deadline=None)
@given(some.data(), some.sampled_from(SHAPES), some.integers(0, 1 << 30))
def test_no_other_set_has_less(data: some.DataObject, shape: tuple[int, int], seed: int) -> None:
    groups, size = shape
    count = groups * data.draw(some.integers(0, size))
    form = drawn(
        groups * size, seed, data.draw(some.integers(1, 3)), data.draw(some.sampled_from((0, 0.3, 9)))
    )
    if data.draw(some.booleans()):
        form = np.round(form)  # many are equal
    least = least_pairs(form, count, groups)
    values = [form[np.ix_(each, each)].sum() for each in all_sets(len(form), count, groups)]
    scale = np.abs(form).sum()
    assert least.gap == 0
    assert least.value == pytest.approx(min(values), abs=1e-7 * scale)
    assert least.value == pytest.approx(form[np.ix_(least.chosen, least.chosen)].sum())
    assert (
        np.bincount(least.chosen * groups // len(form), minlength=groups).tolist()
        == [count // groups] * groups
    )


@settings(max_examples=30, deadline=None)
@given(some.integers(0, 1 << 30), some.sampled_from((1, 2)))
def test_a_bound_without_branching_is_below_all(seed: int, groups: int) -> None:
    form = drawn(12, seed, 2, 3.0)
    least = least_pairs(form, 6, groups, work=1)
    values = [form[np.ix_(each, each)].sum() for each in all_sets(12, 6, groups)]
    assert least.bound <= min(values) + 1e-9 * np.abs(form).sum()
    assert least.value >= min(values) - 1e-9 * np.abs(form).sum()


def test_a_gap_is_a_share_of_the_value() -> None:
    members = np.zeros(0, np.int64)
    assert LeastPairs(members, 2.0, 1.5).gap == 0.25
    assert LeastPairs(members, -2.0, -2.5).gap == 0.25
    assert LeastPairs(members, 2.0, 2.0 - 1e-9).gap == 0
    assert LeastPairs(members, 0.0, 0.0).gap == 0


def test_pairs_of_a_hundred_and_twenty_eight_are_bounded_closely() -> None:
    """The shape of a large mixture: half of its experts leave."""
    form = np.abs(drawn(128, 0, 4, 0.2))
    least = least_pairs(form, 64)
    assert len(set(least.chosen.tolist())) == 64
    assert least.gap < 1e-3
    rng = np.random.default_rng(1)
    others = (rng.permutation(128)[:64] for _ in range(200))
    assert least.bound <= least.value < min(form[np.ix_(each, each)].sum() for each in others)


def test_the_same_set_comes_again_and_the_unit_does_not_matter() -> None:
    form = drawn(24, 5, 3, 1.0)
    first, again = least_pairs(form, 12), least_pairs(2.0**20 * form, 12)
    assert first.chosen.tolist() == again.chosen.tolist()
    assert again.value == pytest.approx(2.0**20 * first.value)


@pytest.mark.parametrize(("count", "groups"), [(3, 2), (2, 5), (9, 1), (-2, 2)])
def test_what_cannot_be_divided_is_refused(count: int, groups: int) -> None:
    with pytest.raises(ValueError, match="cannot be divided"):
        least_pairs(np.eye(8), count, groups)


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        least_pairs(np.full((4, 4), np.inf), 2)
