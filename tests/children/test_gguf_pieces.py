"""Orders of what a GGUF file holds otherwise than the checkpoint, each beside the plain way to say it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("gguf", reason="gguf is not installed")

from zerolm.children.gguf.pieces import in_turn


@given(groups=st.integers(1, 5), each=st.integers(1, 5), unit=st.integers(1, 4))
def test_units_lie_in_turn(groups: int, each: int, unit: int) -> None:
    """Unit u of group g is number u x groups + g, and its elements stay in order."""
    order = in_turn(groups * each * unit, groups, unit).tolist()
    plain = [(g * each + u) * unit + e for u in range(each) for g in range(groups) for e in range(unit)]
    assert order == plain
    assert sorted(order) == list(range(len(order)))


def test_units_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="10 is not divisible by 2 groups of units of 3"):
        in_turn(10, 2, 3)
