"""How long a carving takes: what is foretold adds up, and a limit is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from carvings import carve
from hypothesis import given
from hypothesis import strategies as st
from tiny import saved

from zerolm.carving import pace as pacing
from zerolm.carving.pace import CarvingWork, Pace, announcement, fitting
from zerolm.carving.request import Methods
from zerolm.units.kept_units import Dimensions

PARENT = Dimensions(depth=28, hidden=1024, heads=16, kv_heads=8, head_size=128, ffn=3072)
SPEEDS = st.floats(1e-9, 1e-3)
PACES = st.builds(Pace, SPEEDS, SPEEDS, SPEEDS, st.floats(1e-12, 1e-9), st.floats(1e-12, 1e-9))
WORKS = st.builds(
    lambda criterion, plan, repair, sequences, narrows, written: CarvingWork(
        PARENT,
        Methods(criterion, plan, "random", sequences=sequences, length=64, repair=repair),
        narrows,
        3,
        written,
    ),
    st.sampled_from(["surgeon", "output_energy", "capacity"]),
    st.sampled_from(["prices", "measured", "weights"]),
    st.sampled_from(["none", "least-squares"]),
    st.integers(3, 2000),
    st.booleans(),
    st.booleans(),
)


@given(WORKS, PACES, st.floats(1e-3, 1e6))
def test_as_much_is_read_as_its_time_allows(work: CarvingWork, pace: Pace, limit: float) -> None:
    def total(sequences: int) -> float:
        return sum(work.seconds(pace, sequences).values())

    asked = work.methods.count
    least = min(work.least, asked)
    assert least * 64 >= min(PARENT.ffn, asked * 64)  # a token for each input of the widest matrix
    if total(least) > limit:
        with pytest.raises(
            ValueError, match=f"{least} sequences of 64 tokens are the fewest that make sense"
        ):
            fitting(work, pace, limit)
        return
    sequences = fitting(work, pace, limit)
    assert least <= sequences <= asked
    assert total(sequences) <= limit
    assert sequences == asked or total(sequences + max(1, sequences // 6)) > limit


@given(WORKS, PACES)
def test_more_sequences_and_slower_networks_take_longer(work: CarvingWork, pace: Pace) -> None:
    parts = work.seconds(pace, 40)
    assert min(parts.values()) >= 0.0
    slower = work.seconds(Pace(*(2 * each for each in vars(pace).values())), 40)
    for name, seconds in parts.items():
        assert slower[name] == pytest.approx(2 * seconds)
        assert work.seconds(pace, 80)[name] >= seconds
    assert ("predicting cuts" in parts) == (work.methods.plan == "prices")
    assert ("Fisher information" in parts) == (work.narrows or work.methods.criterion == "surgeon")


def test_what_would_take_less_is_named() -> None:
    work = CarvingWork(
        PARENT,
        Methods("output_energy", "measured", "t", sequences=64, length=256, repair="least-squares"),
        True,
        3,
        True,
    )
    slow = Pace(5e-4, 2e-3, 5e-3, 5e-11, 5e-11)
    said = announcement(work, slow)
    assert "--plan prices takes" in said
    assert "--sequences 16 takes" in said
    assert announcement(work, Pace(*(1e-15,) * 5)) == ""


def test_a_carving_keeps_its_time_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = saved(tmp_path / "parent", "llama")
    child: dict[str, Any] = {"max_params": "0.8x", "text": "random", "sequences": 64, "length": 16}
    monkeypatch.setattr(pacing, "measured_pace", lambda *_: Pace(1e-3, 4e-3, 1e-4, 1e-12, 1e-12))
    monkeypatch.setattr(
        "zerolm.carving.session.measured_pace", lambda *_: Pace(1e-3, 4e-3, 1e-4, 1e-12, 1e-12)
    )
    said: list[str] = []

    def told(text: str, *_: int) -> None:
        said.append(text)

    carved = carve(parent, **child, for_=5.0, progress=told)
    counted = int(carved.note.split()[0])
    assert 1 <= counted < 64
    assert carved.note.startswith(f"{counted} sequences, to last about 5 s")
    assert carved.note.split(";")[0] in said
    monkeypatch.setattr("zerolm.carving.session.measured_pace", lambda *_: Pace(1.0, 4.0, 1.0, 1e-12, 1e-12))
    with pytest.raises(
        ValueError, match="--for 5 s is too short: 3 sequences of 16 tokens are the fewest that make sense"
    ):
        carve(parent, tmp_path / "child", **child, for_=5.0)
    assert not (tmp_path / "child").exists()
    with pytest.raises(ValueError, match="--for chooses how much of a text is read"):
        carve(parent, keep_ffn=0.5, for_=5.0)
