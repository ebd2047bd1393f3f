"""Passages of a text: as many sequences as their logits leave memory for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zerolm.evaluation.readers import BATCH, LOGITS, batch_of


@given(st.integers(1, 1 << 19), st.integers(1, 1 << 14))
def test_logits_of_a_passage_are_bounded(vocab: int, length: int) -> None:
    count = batch_of(vocab, length)
    assert 1 <= count <= BATCH
    assert count == 1 or count * vocab * length <= LOGITS
    assert count == BATCH or (count + 1) * vocab * length > LOGITS
