"""Charts as HTML: plots that are marked together, bars, strips and maps."""

from __future__ import annotations

from html import escape
from typing import Any, Final

from zerolm.show.bars import bars_html
from zerolm.show.charts import Bars, Chart, Heat, Linked, Plot, Strips
from zerolm.show.markup import data
from zerolm.show.plots import place, plot_html
from zerolm.show.strip import records_html, strips_html

LEVELS: Final = 10


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
    document = {
        "label": chart.label,
        "names": list(chart.names),
        "columns": _columns(chart.columns),
        "plots": [_points(plot) for plot in chart.plots],
    }
    mark = " data-detail" if chart.records else ""
    linked = f'<div class="linked"{mark}>{"".join(drawn)}{data(document, "points")}</div>'
    if chart.records is None:
        return linked
    return f'<div class="beside"><div>{linked}</div>{records_html(chart.records)}</div>'


def _points(plot: Plot) -> dict[str, Any]:
    places = [place(plot, point) for point in plot.points]
    return {
        "x": [x for x, _ in places],
        "y": [round(y) for _, y in places],
        "columns": _columns(plot.columns),
    }


def _columns(columns: Any) -> list[list[Any]]:
    return [[name, list(values)] for name, values in columns]


def _heat(chart: Heat) -> str:
    """Return a table whose cells are the darker the larger their numbers are."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in chart.columns)
    lines = []
    for name, values, texts in zip(chart.rows, chart.values, chart.texts, strict=True):
        cells = "".join(
            f'<td class="heat{_level(value, chart.ends)}">{escape(text)}</td>'
            for value, text in zip(values, texts, strict=True)
        )
        lines.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    caption = f"<caption>{escape(chart.title)}</caption>" if chart.title else ""
    return (
        f'<div class="scroll" role="group" aria-label="{escape(chart.title or "map")}" tabindex="0">'
        f'<table class="heat">{caption}<thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _level(value: float, ends: tuple[float, float]) -> int:
    low, high = ends
    share = (value - low) / (high - low) if high > low else 0.0
    return round(LEVELS * min(1.0, max(0.0, share)))
