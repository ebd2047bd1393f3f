"""The choice of experts against all that there are."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from zerolm.carving.experts.expert_choice import best_by_pairs, best_experts

SHAPES = [(groups, size) for groups in (1, 2, 3) for size in range(2, 8) if groups * size <= 14]


@settings(max_examples=40, deadline=None)
@given(some.data(), some.sampled_from(SHAPES))
def test_no_other_choice_is_worth_more(data: some.DataObject, shape: tuple[int, int]) -> None:
    groups, size = shape
    experts = groups * size
    each = data.draw(some.integers(1, size))
    worth = np.array(data.draw(some.lists(some.integers(-3, 9), min_size=experts, max_size=experts)), float)
    kept = best_experts(worth, each * groups, groups)
    assert sorted(set(kept.tolist())) == kept.tolist()
    assert np.bincount(kept // size, minlength=groups).tolist() == [each] * groups
    choices = (
        c
        for c in combinations(range(experts), each * groups)
        if all(sum(expert // size == group for expert in c) == each for group in range(groups))
    )
    assert worth[kept].sum() == max(worth[list(c)].sum() for c in choices)


def test_of_equal_experts_the_first_stay() -> None:
    assert best_experts(np.zeros(8), 4, 2).tolist() == [0, 1, 4, 5]


def test_a_worth_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN or infinite"):
        best_experts(np.array([1.0, np.nan]), 1)


def test_those_leave_that_lose_least_together() -> None:
    """By pairs: two that stand in for each other do not both leave, though each alone is the cheapest."""
    pairs = np.array([[1.0, 9.0, 0.0, 0.0], [9.0, 1.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.5], [0.0, 0.0, 0.5, 3.0]])
    chosen = best_by_pairs(pairs, 2)
    assert chosen.kept.tolist() == [1, 3]
    assert (chosen.loss, chosen.gap, chosen.is_proven) == (3.0, None, False)
    assert best_experts(pairs.diagonal(), 2).tolist() == [2, 3], "by single worth both of them go"
    assert best_by_pairs(pairs, 2, 2).kept.tolist() == [1, 3]
