"""Plots as SVG whose units are pixels of the screen, as wide as there is room.

Places along x are shares of the width, so that a drawing fills a phone and a desk without a script and its
text keeps its size; heights are pixels. What differs between narrow and wide (ticks) is drawn for both, and
the style of the page shows one. Outside a page, as in a notebook, all colours and sizes still hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from zerolm.show.charts import (
    Area,
    Axis,
    Band,
    Dots,
    Key,
    Level,
    Limit,
    Line,
    Mark,
    Pair,
    Plot,
    Sign,
)

COLOURS: Final = {
    **{"blue": "#3f87d9", "orange": "#d9702b", "green": "#2f9e69", "grey": "#8a94a0"},
    "ink": "currentColor",
}
"""Where the style of the page does not say better: readable on white and on black."""
SPAN: Final = 1000
TICKS: Final = {"n": 4, "w": 9}
"""Of an x axis, narrow and wide."""
SHAPES: Final = {
    "dot": '<circle r="4.5"/>',
    "ring": '<circle r="4.5" fill="none" stroke-width="2"/>',
    "diamond": '<path d="M0-6L6 0L0 6L-6 0Z"/>',
    "cross": '<path d="M-5-5L5 5M-5 5L5-5" stroke-width="2"/>',
    "star": '<path d="M0-10L2.6-3.6L9.5-3.1L4.2 1.4L5.9 8.1L0 4.4L-5.9 8.1L-4.2 1.4L-9.5-3.1L-2.6-3.6Z"/>',
    "bar": '<path d="M-12 0H12" stroke-width="2"/>',
    "dashes": '<path d="M-12 0H12" stroke-width="2" stroke-dasharray="6 4"/>',
    "band": '<path d="M-12-6H12V6H-12Z" fill-opacity=".25" stroke="none"/>',
}


def paint(colour: str, *parts: str) -> str:
    """Return the colour of the fill (``f``) or stroke (``s``), that of the page where there is one."""
    names = {"f": "fill", "s": "stroke"}
    marks = " ".join(f'{names[part]}="{COLOURS[colour]}"' for part in parts)
    return f'class="{" ".join(parts)} {colour}" {marks}'


def shape(kind: str, colour: str, title: str = "") -> str:
    """Return a small mark around 0, 0 that says ``title`` when it is pointed at."""
    tip = f"<title>{escape(title)}</title>" if title else ""
    return f"<g {paint(colour, 'f', 's')}>{SHAPES[kind]}{tip}</g>"


def legend(keys: Sequence[Key]) -> str:
    """Return the legend of marks; empty where there are none."""
    entries = (
        f'<span class="key" style="white-space:nowrap;margin-right:1em"><svg width="26" height="16" '
        f'viewBox="-13 -8 26 16" aria-hidden="true">{shape(kind, colour)}</svg> {escape(text)}</span>'
        for kind, colour, text in keys
    )
    return f'<p class="legend">{" ".join(entries)}</p>' if keys else ""


def place(plot: Plot, point: Pair) -> tuple[int, float]:
    """Return where a point lies: a share of the width in thousandths, and pixels from the top."""
    return round(SPAN * plot.x(point[0])), round(plot.height * (1 - plot.y(point[1])), 1)


def plot_html(plot: Plot, narrow: bool = False) -> str:
    """Return a plot; ``narrow`` for a place without the style of the page, which hides some ticks."""
    box = f'width="100%" height="{plot.height}" overflow="visible" font-size="12" fill="currentColor"'
    return (
        f"{legend(plot.keys)}"
        '<div class="plot" style="padding:24px 16px 46px 62px;position:relative">'
        f'<svg class="xy" {box} role="img" aria-label="{escape(plot.label)}">'
        f"{_grid(plot, narrow)}{''.join(_drawn(plot, mark) for mark in plot.marks)}</svg></div>"
    )


def _drawn(plot: Plot, mark: Mark) -> str:
    match mark:
        case Line():
            return _line(plot, mark)
        case Level():
            ends = [(plot.x.low, mark.y), (plot.x.high, mark.y)]
            return _line(plot, Line(ends, mark.colour, mark.dash))
        case Area():
            return _area(plot, mark)
        case Band():
            along = plot.x if mark.upright else plot.y
            low, high = (min(max(end, along.low), along.high) for end in (mark.low, mark.high))
            left, right = plot.x.low, plot.x.high
            if mark.upright:
                left, right, low, high = low, high, plot.y.low, plot.y.high
            return _area(plot, Area([(left, low), (right, low), (right, high), (left, high)], mark.colour))
        case Dots():
            path = "".join(f"M{x} {y:g}h0" for x, y in _places(plot, mark.points))
            look = f'stroke-width="{mark.size:g}" stroke-linecap="round" stroke-opacity="{mark.opacity:g}"'
            return _path(plot, path, f"{paint(mark.colour, 's')} {look}")
        case Sign():
            x, y = place(plot, mark.point)
            drawn = shape(mark.kind, mark.colour, mark.title)
            return f'<svg x="{x / 10:g}%" y="{y:g}" overflow="visible">{drawn}</svg>'
        case Limit():
            return _limit(plot, mark)


def _places(plot: Plot, points: Iterable[Pair]) -> list[tuple[int, float]]:
    return [place(plot, point) for point in points]


def _line(plot: Plot, line: Line) -> str:
    (x, y), *others = dict.fromkeys(_places(plot, line.points))
    path = f"M{x} {y:g}" + "".join(f"H{x}V{y:g}" if line.step else f"L{x} {y:g}" for x, y in others)
    dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
    return _path(plot, path, f'{paint(line.colour, "s")} fill="none" stroke-width="2"{dash}')


def _area(plot: Plot, area: Area) -> str:
    path = "L".join(f"{x} {y:g}" for x, y in _places(plot, area.points))
    return _path(plot, f"M{path}Z", f'{paint(area.colour, "f")} fill-opacity="{area.opacity:g}"')


def _limit(plot: Plot, limit: Limit) -> str:
    share, _ = place(plot, (limit.x, plot.y.low))
    rule = _path(plot, f"M{share} 0V{plot.height}", f'{paint("ink", "s")} stroke-dasharray="5 4"')
    side, gap = ("end", -0.8) if share > SPAN / 3 else ("start", 0.8)
    return rule + _words(f"{share / 10 + gap:g}%", plot.height - 8, limit.text, side, "soft")


def _path(plot: Plot, path: str, look: str) -> str:
    box = f'viewBox="0 0 {SPAN} {plot.height}" preserveAspectRatio="none"'
    return (
        f'<svg width="100%" height="{plot.height}" {box} overflow="visible">'
        f'<path d="{path}" vector-effect="non-scaling-stroke" {look}/></svg>'
    )


def _grid(plot: Plot, narrow: bool) -> str:
    height, lines = plot.height, []
    for tick in plot.y.ticks(max(3, height // 42)):
        y = place(plot, (plot.x.low, tick))[1]
        lines.append(_rule("0", "100%", y, y))
        lines.append(_words("-8", y + 4, plot.y.form(tick), "end", "soft"))
    for tick, kind in _ticks(plot.x, narrow):
        x = f"{place(plot, (tick, plot.y.low))[0] / 10:g}%"
        lines.append(_rule(x, x, 0, height + 4, kind))
        lines.append(_words(x, height + 19, plot.x.form(tick), kind=f"soft {kind}".strip()))
    lines.append(_words("50%", height + 39, plot.x.name))
    lines.append(_words("-54", -10, plot.y.name, "start"))
    return "".join(lines)


def _ticks(axis: Axis, narrow: bool) -> list[tuple[float, str]]:
    """Return the ticks of an x axis, and whether they are of narrow or of wide drawings alone."""
    ticks = {kind: axis.ticks(most) for kind, most in TICKS.items()}
    drawn = sorted({*ticks["n"], *(() if narrow else ticks["w"])})
    alone = {tick: [kind for kind in TICKS if tick in ticks[kind]] for tick in drawn}
    return [(tick, kinds[0] if len(kinds) == 1 and not narrow else "") for tick, kinds in alone.items()]


def _rule(x1: str, x2: str, y1: float, y2: float, kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    ends = f'x1="{x1}" x2="{x2}" y1="{y1:g}" y2="{y2:g}"'
    return f'<line {ends} stroke="currentColor" stroke-opacity=".14"{mark}/>'


def _words(x: str, y: float, text: str, anchor: str = "middle", kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y:g}" text-anchor="{anchor}"{mark}>{escape(text)}</text>'
