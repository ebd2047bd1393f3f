"""Axes and drawings of pages, and tables on the terminal."""

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.show.charts import (
    LINEAR,
    Axis,
    Band,
    Bar,
    Bars,
    Dots,
    Limit,
    Line,
    Linked,
    Mark,
    Plot,
    Sign,
    axis,
)
from zerolm.show.drawing import bars_html, chart_html
from zerolm.show.plots import SPAN, place, plot_html
from zerolm.show.sheet import Cell
from zerolm.show.terminal import table_lines


@pytest.mark.parametrize(
    "values", [[0.0, 1.0], [1.0, 1e6], [-3.0, 400.0], [7.0, 7.0], [0.0, 0.0], [1e-9, 2e-9], [55.0, 75.0]]
)
@pytest.mark.parametrize("most", [4, 6, 9])
def test_ticks_are_few_round_and_within_the_axis(values: list[float], most: int) -> None:
    made = axis(values, "x")
    ticks = made.ticks(most)
    assert 2 <= len(ticks) <= most + 1
    assert all(-1e-9 <= made(tick) <= 1 + 1e-9 for tick in ticks)
    assert all(made(b) - made(a) > 0.7 / (most + 1) for a, b in pairwise(ticks))
    assert all(float(f"{tick:.3g}") == pytest.approx(tick, rel=1e-9, abs=1e-15) for tick in ticks)


def test_axes_are_logarithmic_where_values_spread() -> None:
    assert axis([1.0, 8.0], "x").log
    assert not axis([1.0, 7.9], "x").log
    assert not axis([1.0, 800.0], "x", wide=LINEAR).log
    assert not axis([0.0, 800.0], "x").log
    assert axis([1.0, 100.0], "x")(10.0) == pytest.approx(0.5)


def plot(x: Axis, *marks: Mark, y: Axis | None = None, height: int = 300) -> Plot:
    return Plot("label", x, y or Axis(0.0, 1.0, "y"), marks, height=height)


def test_places_are_shares_of_the_width_and_pixels_of_the_height() -> None:
    x, points = Axis(0.0, 10.0, "x"), [(2.5, 0.25), (10.0, 1.0)]
    assert place(plot(x, height=200), points[0]) == (SPAN / 4, 150.0)
    assert place(plot(x, height=200), points[1]) == (SPAN, 0.0)
    drawn = plot_html(
        plot(x, Dots(points, "blue"), Line(points, "blue", step=True), Sign("star", points[0], "orange"),
             height=200)
    )  # fmt: skip
    for words in ('d="M250 150h0M1000 0h0"', 'd="M250 150H1000V0"', 'x="25%" y="150"'):
        assert words in drawn


@given(st.floats(-9, 9), st.floats(0, 9), st.booleans())
def test_a_band_ends_with_its_axis(low: float, width: float, upright: bool) -> None:
    drawn = plot_html(plot(Axis(0.0, 1.0, "x"), Band(low, low + width, "orange", upright), height=200))
    path = re.search(r'd="M([^Z]*)Z"', drawn)
    assert path
    corners = [tuple(map(float, corner.split())) for corner in path[1].split("L")]
    assert all(0 <= x <= SPAN and 0 <= y <= 200 for x, y in corners)


def test_a_long_line_is_as_short_as_the_eye_sees_it() -> None:
    points = [(i / 100_000, i / 100_000) for i in range(100_000)]
    assert len(plot_html(plot(Axis(0.0, 1.0, "x"), Line(points, "blue", step=True)))) < 50_000


def test_a_narrow_drawing_has_one_set_of_ticks() -> None:
    drawing = plot(Axis(0.0, 10.0, "x"))
    assert 'class="soft w"' in plot_html(drawing)
    assert not re.search(r'class="(soft )?[nw]"', plot_html(drawing, narrow=True))


def test_hostile_names_stay_text() -> None:
    evil = "</script><script>alert('1' & \"2\")\u2028</script>"
    marks = [Sign("dot", (0.5, 0.5), "blue", evil), Limit(0.5, evil)]
    axes = Axis(0.0, 1.0, evil), Axis(0.0, 1.0, evil)
    drawing = Plot(evil, *axes, marks, [("dot", "blue", evil)], points=[(0.5, 0.5)], columns=[(evil, [evil])])
    text = chart_html(Linked([drawing], [evil], evil))
    assert text.count("<script") == text.count("</script") == 1
    document = json.loads(re.search(r'class="points">(.*)</script>', text)[1])  # type: ignore[index]
    assert (document["names"], document["plots"][0]["columns"]) == ([evil], [[evil, [evil]]])
    assert "<script" not in bars_html(Bars(evil, Axis(0.0, 2.0, evil), [Bar(evil, 1.0, evil)]))


def test_a_value_far_off_is_an_arrow_at_the_edge() -> None:
    rows = [
        Bar("far", -7.0, "-7", "grey", -8.0, -6.0, "dot"),
        Bar("near", 0.5, "0.5", "blue", 0.4, 0.6, "dot"),
        Bar("none", None, "-"),
    ]
    drawn = bars_html(Bars("taus", Axis(0.0, 1.0, "tau"), rows, [(0.2, "ink")]))
    assert (drawn.count("◂"), drawn.count("▸"), drawn.count("<circle")) == (1, 0, 1)
    assert drawn.count("</li>") == 4


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
        "score       remark", "geo", "zerolm 1.1  saw the labels of all", "            architectures",
    ]  # fmt: skip


def test_columns_without_room_follow_in_a_second_table() -> None:
    assert list(table_lines(HEAD[:3], [row[:3] for row in ROWS], 24)) == [
        "score       tau-b", "geo          0.87", "zerolm 1.1    0.9", "", "score             95 %",
        "geo         0.84..0.89", "zerolm 1.1           -",
    ]  # fmt: skip


CELL = st.text("abc 019.-", max_size=12).map(str.strip)


@given(st.integers(1, 7).flatmap(lambda n: st.lists(st.tuples(*[CELL] * n), min_size=1, max_size=5)))
def test_nothing_is_lost_and_nothing_too_wide(lines: list[tuple[str, ...]]) -> None:
    head, *rows = lines
    shown = list(table_lines(head, rows, 30))
    assert all(len(line) <= 30 for line in shown)
    words = " ".join(shown).split()
    assert all(part in words for line in lines for cell in line for part in cell.split())
