"""Charts as HTML: plots that are marked together, bars, strips and maps."""

from __future__ import annotations

from html import escape
from typing import Any, Final

from zerolm.show.charts import Axis, Bar, Bars, Chart, Heat, Linked, Plot, Strips
from zerolm.show.markup import data
from zerolm.show.plots import TICKS, legend, paint, place, plot_html, shape
from zerolm.show.strip import records_html, strips_html

LEVELS: Final = 10
PITCH: Final = 24


def chart_html(chart: Chart, narrow: bool = False) -> str:
    """Return a chart; ``narrow`` for a place without the style and script of the page."""
    match chart:
        case Bars():
            return bars_html(chart, narrow)
        case Plot():
            return plot_html(chart, narrow)
        case Linked():
            return plot_html(chart.plots[0], narrow) if narrow else _linked(chart)
        case Strips():
            return strips_html(chart)
        case Heat():
            return _heat(chart)


def _linked(chart: Linked) -> str:
    """Return the plots, the points that the script of the page marks in them, and the panel of records."""
    drawn = [plot_html(plot) for plot in chart.plots]
    if len(drawn) > 1:
        captions = [f"<figcaption>{escape(plot.caption)}</figcaption>" for plot in chart.plots]
        figures = (f"<figure>{c}{d}</figure>" for c, d in zip(captions, drawn, strict=True))
        drawn = [f'<div class="triple">{"".join(figures)}</div>']
    document: dict[str, Any] = {
        "label": chart.label,
        "names": list(chart.names),
        "columns": _columns(chart.columns),
        "plots": [],
    }
    for plot in chart.plots:
        places = [place(plot, point) for point in plot.points]
        x, y = [x for x, _ in places], [round(y) for _, y in places]
        document["plots"].append({"x": x, "y": y, "columns": _columns(plot.columns)})
    mark = " data-detail" if chart.records else ""
    linked = f'<div class="linked"{mark}>{"".join(drawn)}{data(document, "points")}</div>'
    if chart.records is None:
        return linked
    return f'<div class="beside"><div>{linked}</div>{records_html(chart.records)}</div>'


def _columns(columns: Any) -> list[list[Any]]:
    return [[name, list(values)] for name, values in columns]


def _heat(chart: Heat) -> str:
    """Return a table whose cells are the darker the larger their numbers are."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in chart.columns)
    lines, (low, high) = [], chart.ends

    def scale(value: float) -> float:
        return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0

    for name, values, texts in zip(chart.rows, chart.values, chart.texts, strict=True):
        cells = "".join(
            f'<td class="heat{round(LEVELS * scale(value))}">{escape(text)}</td>'
            for value, text in zip(values, texts, strict=True)
        )
        lines.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    caption = f"<caption>{escape(chart.title)}</caption>" if chart.title else ""
    return (
        f'<div class="scroll" role="group" aria-label="{escape(chart.title or "map")}" tabindex="0">'
        f'<table class="heat">{caption}<thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def bars_html(chart: Bars, narrow: bool = False) -> str:
    """Return one line a row.

    A bar is drawn from 0, or from the low end of the axis. What lies beyond the axis is drawn as an arrow at
    its edge.
    """
    rules = ""
    for value, colour in chart.rules:
        x = _percent(chart.axis(value))
        ends = f'x1="{x}" x2="{x}" y1="0" y2="{PITCH}"'
        rules += f'<line {ends} stroke-dasharray="4 3" {paint(colour, "s")}/>'
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
