"""Numbers as they are stored: what a type holds comes back, what it does not reach is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.checkpoints.dtypes import narrowed, widened

NUMBERS = st.lists(st.floats(-65_519, 65_519, width=32), min_size=1, max_size=8)


@given(NUMBERS)
def test_float16_rounds_what_it_reaches(numbers: list[float]) -> None:
    exact = np.array(numbers, np.float32)
    stored = widened(narrowed(exact, "F16"), "F16")
    assert np.array_equal(stored, exact.astype(np.float16).astype(np.float32))
    assert np.isfinite(stored).all()


@given(NUMBERS, st.floats(65_520, 2.0**100, width=32), st.sampled_from([1, -1]))
def test_beyond_float16_is_refused_without_a_warning(numbers: list[float], large: float, sign: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="beyond float16, which ends at 65,504"):
            narrowed(np.array([*numbers, sign * large], np.float32), "F16")
        narrowed(np.array([*numbers, sign * large], np.float32), "BF16")
