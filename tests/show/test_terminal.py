"""Tables: of the width of the terminal, nothing lost; in a pipe a row is one line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zerolm.show.sheet import Cell
from zerolm.show.terminal import table_lines

HEAD = ("score", "tau-b", "95 %", Cell("remark", "shape"))
ROWS = [("geo", "0.87", "0.84..0.89", ""), ("zerolm 1.1", "0.9", "-", "saw the labels of all architectures")]


def test_numbers_stand_to_the_right() -> None:
    assert list(table_lines(HEAD, ROWS, None)) == [
        "score       tau-b        95 %  remark",
        "geo          0.87  0.84..0.89",
        "zerolm 1.1    0.9           -  saw the labels of all architectures",
    ]


def test_text_is_folded_beside_or_below() -> None:
    assert list(table_lines(HEAD, ROWS, 58))[2:] == [
        "zerolm 1.1    0.9           -  saw the labels of all",
        "                               architectures",
    ]
    assert list(table_lines(HEAD, ROWS, 40))[4:] == [
        "score       remark",
        "geo",
        "zerolm 1.1  saw the labels of all",
        "            architectures",
    ]


def test_columns_without_room_follow_in_a_second_table() -> None:
    assert list(table_lines(HEAD[:3], [row[:3] for row in ROWS], 24)) == [
        "score       tau-b",
        "geo          0.87",
        "zerolm 1.1    0.9",
        "",
        "score             95 %",
        "geo         0.84..0.89",
        "zerolm 1.1           -",
    ]


CELL = st.text("abc 019.-", max_size=12).map(str.strip)


@given(st.integers(1, 7).flatmap(lambda n: st.lists(st.tuples(*[CELL] * n), min_size=1, max_size=5)))
def test_nothing_is_lost_and_nothing_too_wide(lines: list[tuple[str, ...]]) -> None:
    head, *rows = lines
    shown = list(table_lines(head, rows, 30))
    assert all(len(line) <= 30 for line in shown)
    words = " ".join(shown).split()
    assert all(part in words for line in lines for cell in line for part in cell.split())
