"""``benchmarks/parts.py``: what is measured once is not measured again."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from parts import Parts


def test_a_part_is_measured_once(tmp_path: Path) -> None:
    parts, runs = Parts(tmp_path / "made" / "kind.jsonl"), []

    def measure() -> dict[str, list[int]]:
        runs.append(1)
        return {"losses": [1, 2]}

    assert parts.stored("a") is None
    assert [parts.measured("a", measure) for _ in range(2)] == [{"losses": [1, 2]}] * 2
    assert Parts(parts.file).every() == {"a": {"losses": [1, 2]}}
    assert len(runs) == 1


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "kind.jsonl")
    for number, name in enumerate("ab"):
        parts.measured(name, lambda number=number: number)
    parts.file.write_text(parts.file.read_text()[:-4])
    assert parts.every() == {"a": 0}
    assert [parts.measured("b", lambda n=n: n) for n in (5, 6)] == [5, 5]
    assert Parts(parts.file).every() == {"a": 0, "b": 5}


def test_a_part_without_a_result_is_measured(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "kind.jsonl")
    assert parts.measured("none", lambda: None) is None
    assert parts.measured("none", lambda: 1) is None
