"""Rows with a name, a bar or an interval, and a number: HTML around small drawings."""

from __future__ import annotations

from html import escape
from typing import Final

from zerolm.show.charts import Axis, Bar, Bars
from zerolm.show.plots import TICKS, legend, paint, shape

PITCH: Final = 24


def bars_html(chart: Bars, narrow: bool = False) -> str:
    """Return one line a row.

    A bar is drawn from 0, or from the low end of the axis. What lies beyond the axis is drawn as an arrow at
    its edge.
    """
    rules = "".join(_vertical(chart.axis(value), colour) for value, colour in chart.rules)
    lines = "".join(
        f'<li{_style(narrow, "display:contents")}><span class="name">{escape(row.name)}</span>'
        f'<svg width="100%" height="{PITCH}" overflow="visible" aria-hidden="true">'
        f"{_drawn(row, chart.axis)}{rules}</svg>"
        f'<span class="value">{escape(row.text)}</span></li>'
        for row in chart.rows
    )
    grid = "display:grid;grid-template-columns:auto 1fr auto;column-gap:12px;align-items:center;padding:0"
    return (
        f'{legend(chart.keys)}<div class="bars-box"><ul class="bars" aria-label="{escape(chart.label)}"'
        f"{_style(narrow, grid)}>{lines}{_axis(chart.axis, narrow)}</ul></div>"
    )


def _style(narrow: bool, text: str) -> str:
    return f' style="{text}"' if narrow else ""


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _vertical(share: float, colour: str) -> str:
    x = _percent(share)
    return f'<line x1="{x}" x2="{x}" y1="0" y2="{PITCH}" stroke-dasharray="4 3" {paint(colour, "s")}/>'


def _drawn(row: Bar, axis: Axis) -> str:
    if row.value is None:
        return ""
    middle, share = PITCH / 2, axis(row.value)
    if not 0 <= share <= 1:
        x, arrow = ("0", "◂") if share < 0 else ("100%", "▸")
        anchor = "start" if share < 0 else "end"
        return f'<text x="{x}" y="{middle + 5:g}" text-anchor="{anchor}" fill="currentColor">{arrow}</text>'
    parts = []
    if row.kind == "bar":
        start = min(max(axis(0.0), 0.0), 1.0) if not axis.log else 0.0
        left, width = min(start, share), abs(share - start)
        place = f'x="{_percent(left)}" y="5" width="{_percent(width)}" height="{PITCH - 10}" rx="2"'
        parts.append(f"<rect {place} {paint(row.colour, 'f')}/>")
    if row.low is not None and row.high is not None:
        ends = [min(max(axis(value), 0.0), 1.0) for value in (row.low, row.high)]
        place = f'x1="{_percent(ends[0])}" x2="{_percent(ends[1])}" y1="{middle:g}" y2="{middle:g}"'
        colour = "ink" if row.kind == "bar" else row.colour
        parts.append(f'<line {place} stroke-width="2" {paint(colour, "s")}/>')
    if row.kind != "bar":
        place = f'x="{_percent(share)}" y="{middle:g}" overflow="visible"'
        parts.append(f"<svg {place}>{shape(row.kind, row.colour)}</svg>")
    return "".join(parts)


def _axis(axis: Axis, narrow: bool) -> str:
    texts = "".join(
        f'<text x="{_percent(axis(tick))}" y="14" text-anchor="middle" class="soft">{escape(axis.form(tick))}'
        "</text>"
        for tick in axis.ticks(TICKS["n"])
    )
    return (
        f'<li class="axis"{_style(narrow, "display:contents")}><span class="name"></span>'
        f'<svg width="100%" height="40" overflow="visible" aria-hidden="true" font-size="12" '
        f'fill="currentColor"><line x1="0" x2="100%" y1="0" y2="0" stroke="currentColor" '
        f'stroke-opacity=".4"/>{texts}<text x="50%" y="34" text-anchor="middle">{escape(axis.name)}</text>'
        '</svg><span class="value"></span></li>'
    )
