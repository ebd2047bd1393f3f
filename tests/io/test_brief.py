"""Objects that hold much are shown on one short line."""

from __future__ import annotations

from drawn import architectures
from hypothesis import given
from hypothesis import strategies as st

from zerolm.architecture import Architecture
from zerolm.io.brief import LONGEST_REPR, brief


@given(st.lists(st.text(max_size=400), max_size=4))
def test_any_text_becomes_one_line(parts: list[str]) -> None:
    text = brief(0, *parts)
    assert len(text) <= LONGEST_REPR
    assert len(text.splitlines()) == 1
    assert text.startswith("int(")
    assert text.endswith(")")


@given(architectures())
def test_an_architecture_says_its_shape(architecture: Architecture) -> None:
    weights = sum(layer.weights for layer in architecture.layers)
    size = f"{architecture.depth} x {architecture.mean_width:g}"
    assert repr(architecture) == f"Architecture(drawn, {size}; {weights:,} weights in its layers)"
