"""Diversity by its identities."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from zerolm.lab.supernets.growth import diversity


@given(st.integers(0, 10**6), st.floats(0.01, 100))
def test_equals_are_1_opposites_less_and_scale_does_not_count(seed: int, scale: float) -> None:
    output = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(seed))
    assert diversity([output, output * scale]) == pytest.approx(1)
    assert diversity([output, -output]) == pytest.approx(-1)
    assert diversity([output, output, -output]) == pytest.approx(-1 / 3)


def test_orthogonal_outputs_are_0() -> None:
    first, second = torch.eye(2)[:, None, None]
    assert diversity([first, second]) == 0


def test_one_block_has_none() -> None:
    with pytest.raises(ValueError, match="two are the least"):
        diversity([torch.ones(1, 1, 1)])
