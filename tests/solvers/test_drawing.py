"""Architectures drawn from a space: equally likely, within budgets, each once where that is asked for."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.scores import make_score
from zerolm.solvers.sampling import drawn
from zerolm.spaces import make_space

SPACE = make_space("flexibert", depth=[1, 2], hidden=[8], heads=[2], ffn=[8], stacks=[1])
"""Six operations a layer, two of which have one shape: 42 architectures of one layer or two."""


def test_all_architectures_are_equally_likely() -> None:
    counts = Counter(json.dumps(one.choices, sort_keys=True) for one in drawn(SPACE, 4200, 0))
    assert len(counts) == 6 + 36
    assert all(abs(count - 100) < 5 * math.sqrt(100) for count in counts.values())
    assert drawn(SPACE, 5, 3) == drawn(SPACE, 5, 3) != drawn(SPACE, 5, 4)


@given(st.sampled_from(["params", "body_params"]), st.integers(0, 41), st.integers(0, 41))
def test_only_those_within_budgets_are_drawn(cost: str, low: int, high: int) -> None:
    size = make_score(cost)
    sizes = sorted(size.of(one) for one in drawn(SPACE, 42, 0, distinct=True))
    low, high = sorted((low, high))
    budgets = {f"min_{cost}": int(sizes[low]), f"max_{cost}": int(sizes[high])}
    inside = [value for value in sizes if sizes[low] <= value <= sizes[high]]
    few = drawn(SPACE, len(inside), 1, budgets=budgets, distinct=True)
    assert sorted(size.of(one) for one in few) == inside


def test_what_is_too_rare_is_refused_with_the_nearest() -> None:
    sizes = sorted(make_score("params").of(one) for one in drawn(SPACE, 200, 0))
    low, high = int(sizes[0]), int(sizes[-1])
    with pytest.raises(ValueError, match=f"more than {low - 1:,} parameters, the smallest of all {low:,}: "):
        drawn(SPACE, 5, 0, budgets={"max_params": low - 1})
    with pytest.raises(
        ValueError, match=f"fewer than {high + 1:,} parameters, the largest of all {high:,}: "
    ):
        drawn(SPACE, 5, 0, budgets={"min_params": high + 1})
