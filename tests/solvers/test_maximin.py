"""The choice that is worth the most where it is worth the least, against all that there are."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from zerolm.solvers.maximin import best_at_worst

SHAPES = [(groups, size) for groups in (1, 2, 3) for size in range(2, 11) if groups * size <= 10]


@settings(max_examples=40, deadline=None)
@given(some.data(), some.sampled_from(SHAPES), some.integers(1, 3), some.integers(0, 1 << 30))
def test_no_other_choice_is_worth_more_at_worst(
    data: some.DataObject, shape: tuple[int, int], ways: int, seed: int
) -> None:
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
    assert best.gap == 0
    assert best.value == pytest.approx(most, rel=1e-5)
    assert best.bound >= most * (1 - 1e-5)
    assert np.bincount(best.chosen // size, minlength=groups).tolist() == [each] * groups


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN or infinite"):
        best_at_worst(np.array([[1.0, np.nan]]), 1)
