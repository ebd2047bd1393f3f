"""Rows of a long run survive a kill at any byte, and two writers of one file."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from zerolm.io.kept_rows import KeptRows

NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
ROWS = st.dictionaries(NAMES, st.lists(st.floats(allow_nan=False), max_size=2), min_size=1, max_size=4)


@given(first=ROWS, second=ROWS, cut=st.floats(0, 1))
def test_a_kill_at_any_byte_loses_the_torn_row_alone(
    first: dict[str, list[float]], second: dict[str, list[float]], cut: float
) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        KeptRows(file).add(first)
        whole = file.read_bytes()
        left = whole[: round(cut * len(whole))]
        file.write_bytes(left)
        rest = KeptRows(file)
        complete = left.count(b"\n")
        assert complete <= len(rest.results) <= complete + 1  # a row may lack its newline alone
        assert all(first[name] == row for name, row in rest.results.items())
        rest.add(second)
        assert KeptRows(file).results == {**rest.results, **second}


@given(first=ROWS, second=ROWS)
def test_two_writers_share_a_file(first: dict[str, list[float]], second: dict[str, list[float]]) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        one, other = KeptRows(file), KeptRows(file)
        one.add(first)
        other.add(second)
        assert KeptRows(file).results == {**first, **second}
