"""Learning curve of repair: measured with a quarter of the tokens, predicted for twice as many."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from carvings import carve
from hypothesis import given
from hypothesis import strategies as st
from made_tokenizers import CORPUS, byte_level
from made_vocabularies import decoder

from zerolm.carving import finished_child
from zerolm.carving.amount import loss_by_twice


@given(st.floats(0, 10), st.floats(0, 1e6), st.integers(4, 1 << 20), st.integers(2, 8))
def test_twice_the_tokens_leave_what_the_law_says(a: float, b: float, tokens: int, fewer: int) -> None:
    by_all, by_fewer = a + b / tokens, a + fewer * b / tokens
    assert loss_by_twice(by_all, by_fewer, fewer) == pytest.approx(a + b / (2 * tokens), abs=1e-9)


def test_more_tokens_never_cost() -> None:
    assert loss_by_twice(0.2, 0.1, 4) == 0.2


def test_a_short_text_is_said_to_be_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_child, "WORTH_TOKENS", -1.0)
    parent = decoder(tmp_path / "parent", byte_level())
    text = tmp_path / "text.txt"
    text.write_text(CORPUS[0] * 20, "utf-8")
    flags = {"keep_ffn": 0.5, "text": str(text), "sequences": 24, "length": 16}
    carved = carve(parent, tmp_path / "child", **flags)
    points = re.search(
        r"quarter of the tokens it loses ([\d.e-]+), on twice the number about ([\d.e-]+): --sequences 48",
        carved.note,
    )
    assert points is not None
    by_fewer, by_twice = (float(point.rstrip(".")) for point in points.groups())
    assert by_twice == pytest.approx(loss_by_twice(carved.losses["repaired"], by_fewer, 4), rel=1e-2)
    for other in ({"for_": 3600.0}, {"repair": "none"}):
        assert "quarter of" not in carve(parent, tmp_path / str(len(other)), force=True, **flags | other).note
