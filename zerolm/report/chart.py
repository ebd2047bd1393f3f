"""The chart system: SVG whose units are pixels of the screen, as wide as there is room.

Places along x are shares of the width, so that a drawing fills a phone and a desk without a script and its
text keeps its size; heights are pixels. What differs between narrow and wide (ticks) is drawn for both, and
the style of the page shows one. Outside a page, as in a notebook, all colours and sizes still hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from zerolm.report.page import data

COLOURS: Final = {
    **{"blue": "#3f87d9", "orange": "#d9702b", "green": "#2f9e69", "grey": "#8a94a0"},
    "ink": "currentColor",
}
"""Where the style of the page does not say better: readable on white and on black."""
SPAN: Final = 1000
WIDE, LINEAR = 8.0, math.inf
"""Positive values whose largest is this many times their smallest are drawn on a logarithmic axis."""
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
Pair = tuple[float, float]


def amount(value: float) -> str:
    """Return a short number: 0.05, 12, 3.5k, 40M."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (10 if unit == "k" else 1):
            return f"{value / size:.6g}{unit}"
    return f"{value:.6g}" if abs(value) > 1e-12 else "0"


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from ``low`` to ``high`` onto 0 to 1, with the name and unit of what they are."""

    low: float
    high: float
    name: str
    log: bool = False
    form: Callable[[float], str] = amount

    def __call__(self, value: float) -> float:
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return (at - low) / (high - low)

    def ticks(self, most: int) -> list[float]:
        """Return at most so many round values, and one more at times."""
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            sparser = [((1,), stride) for stride in range(1, len(decades))]
            for digits, stride in [((1, 2, 5), 1), ((1, 3), 1), *sparser]:
                values = [d * 10.0**k for k in decades[::stride] for d in digits]
                ticks = [value for value in values if self.low <= value <= self.high]
                if 2 <= len(ticks) <= most:
                    return ticks
        span = self.high - self.low
        power = 10.0 ** math.floor(math.log10(span / most))
        step = next(power * d for d in (1, 2, 5, 10) if power * d * most >= span)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]


def axis(
    values: Iterable[float],
    name: str,
    *,
    wide: float = WIDE,
    form: Callable[[float], str] = amount,
    pad: float = 0.05,
) -> Axis:
    """Return an axis that shows all the values; logarithmic where positive ones spread ``wide``."""
    numbers = list(values)
    low, high = min(numbers), max(numbers)
    if low > 0 and high / low >= wide:
        room = (high / low) ** pad
        return Axis(low / room, high * room, name, True, form)
    room = pad * (high - low) or 0.05 * abs(high) or 1.0
    return Axis(low - room, high + room, name, False, form)


def paint(colour: str, *parts: str) -> str:
    """Return the colour of the fill (``f``) or stroke (``s``), that of the page where there is one."""
    names = {"f": "fill", "s": "stroke"}
    marks = " ".join(f'{names[part]}="{COLOURS[colour]}"' for part in parts)
    return f'class="{" ".join(parts)} {colour}" {marks}'


def words(x: str, y: float, text: str, anchor: str = "middle", kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y:g}" text-anchor="{anchor}"{mark}>{escape(text)}</text>'


def shape(kind: str, colour: str, title: str = "") -> str:
    """Return a small mark around 0, 0 that says ``title`` when it is pointed at."""
    tip = f"<title>{escape(title)}</title>" if title else ""
    return f"<g {paint(colour, 'f', 's')}>{SHAPES[kind]}{tip}</g>"


def legend(*entries: tuple[str, str, str]) -> str:
    """Return what marks stand for: shape, colour and words of each."""
    keys = (
        f'<span class="key" style="white-space:nowrap;margin-right:1em"><svg width="26" height="16" '
        f'viewBox="-13 -8 26 16" aria-hidden="true">{shape(kind, colour)}</svg> {escape(text)}</span>'
        for kind, colour, text in entries
    )
    return f'<p class="legend">{" ".join(keys)}</p>'


@dataclass(frozen=True, slots=True)
class Frame:
    """A plot with its two axes; each method returns marks within it, ``html`` the whole."""

    x: Axis
    y: Axis
    height: int = 300

    def at(self, point: Pair) -> tuple[int, float]:
        """Return a place: a share of the width in thousandths, and pixels from the top."""
        return round(SPAN * self.x(point[0])), round(self.height * (1 - self.y(point[1])), 1)

    def line(self, points: Sequence[Pair], colour: str, *, dash: str = "", step: bool = False) -> str:
        """Return a line through points, in ``step``s that are level first."""
        places = list(dict.fromkeys(map(self.at, points)))
        path = f"M{places[0][0]} {places[0][1]:g}"
        path += "".join(f"H{x}V{y:g}" if step else f"L{x} {y:g}" for x, y in places[1:])
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        return self._path(path, f'{paint(colour, "s")} fill="none" stroke-width="2"{dashed}')

    def area(self, points: Sequence[Pair], colour: str, opacity: float = 0.15) -> str:
        """Return a filled polygon."""
        path = "L".join(f"{x} {y:g}" for x, y in map(self.at, points))
        return self._path(f"M{path}Z", f'{paint(colour, "f")} fill-opacity="{opacity:g}"')

    def band(self, low: float, high: float, colour: str) -> str:
        """Return the stretch between two values of y."""
        ends = self.x.low, self.x.high
        return self.area([(ends[0], low), (ends[1], low), (ends[1], high), (ends[0], high)], colour)

    def dots(self, points: Sequence[Pair], colour: str, *, size: float = 6, opacity: float = 1.0) -> str:
        """Return many round points in one path."""
        path = "".join(f"M{x} {y:g}h0" for x, y in map(self.at, points))
        look = f'stroke-width="{size:g}" stroke-linecap="round" stroke-opacity="{opacity:g}"'
        return self._path(path, f"{paint(colour, 's')} {look}")

    def mark(self, kind: str, point: Pair, colour: str, title: str = "") -> str:
        """Return one point as a ``SHAPES``."""
        x, y = self.at(point)
        return f'<svg x="{x / 10:g}%" y="{y:g}" overflow="visible">{shape(kind, colour, title)}</svg>'

    def level(self, y: float, colour: str, dash: str = "") -> str:
        """Return a line from left to right."""
        return self.line([(self.x.low, y), (self.x.high, y)], colour, dash=dash)

    def limit(self, x: float, text: str) -> str:
        """Return a vertical line that says what ends there."""
        share, _ = self.at((x, self.y.low))
        rule = self._path(f"M{share} 0V{self.height}", f'{paint("ink", "s")} stroke-dasharray="5 4"')
        side, gap = ("end", -0.8) if share > SPAN / 3 else ("start", 0.8)
        return rule + words(f"{share / 10 + gap:g}%", self.height - 8, text, side, "soft")

    def _path(self, path: str, look: str) -> str:
        box = f'viewBox="0 0 {SPAN} {self.height}" preserveAspectRatio="none"'
        return (
            f'<svg width="100%" height="{self.height}" {box} overflow="visible">'
            f'<path d="{path}" vector-effect="non-scaling-stroke" {look}/></svg>'
        )

    def html(self, marks: Iterable[str], label: str, *, narrow: bool = False) -> str:
        """Return the drawing; ``label`` says what it shows to those who do not see it.

        ``narrow``: for a place without the style of the page, which would hide the ticks of other widths.
        """
        box = f'width="100%" height="{self.height}" overflow="visible" font-size="12" fill="currentColor"'
        return (
            '<div class="plot" style="padding:24px 16px 46px 62px;position:relative">'
            f'<svg class="xy" {box} role="img" aria-label="{escape(label)}">'
            f"{self._grid(narrow)}{''.join(marks)}</svg></div>"
        )

    def _grid(self, narrow: bool) -> str:
        height, lines = self.height, []
        for tick in self.y.ticks(max(3, height // 42)):
            y = self.at((self.x.low, tick))[1]
            lines.append(_rule("0", "100%", y, y))
            lines.append(words("-8", y + 4, self.y.form(tick), "end", "soft"))
        ticks = {kind: self.x.ticks(most) for kind, most in TICKS.items()}
        for tick in sorted({*ticks["n"], *(() if narrow else ticks["w"])}):
            kinds = [kind for kind in TICKS if tick in ticks[kind]]
            kind = kinds[0] if len(kinds) == 1 and not narrow else ""
            x = f"{self.at((tick, self.y.low))[0] / 10:g}%"
            lines.append(_rule(x, x, 0, height + 4, kind))
            lines.append(words(x, height + 19, self.x.form(tick), kind=f"soft {kind}".strip()))
        lines.append(words("50%", height + 39, self.x.name))
        lines.append(words("-54", -10, self.y.name, "start"))
        return "".join(lines)


def _rule(x1: str, x2: str, y1: float, y2: float, kind: str = "") -> str:
    mark = f' class="{kind}"' if kind else ""
    ends = f'x1="{x1}" x2="{x2}" y1="{y1:g}" y2="{y2:g}"'
    return f'<line {ends} stroke="currentColor" stroke-opacity=".14"{mark}/>'


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing whose ``points`` can be pointed at, with ``columns`` of their values by name."""

    frame: Frame
    points: Sequence[Pair]
    columns: Sequence[tuple[str, Sequence[Any]]] = ()

    def to_json(self) -> dict[str, Any]:
        places = [self.frame.at(point) for point in self.points]
        return {
            "x": [x for x, _ in places],
            "y": [round(y) for _, y in places],
            "columns": [[name, list(values)] for name, values in self.columns],
        }


def linked(
    drawn: str,
    plots: Sequence[Plot],
    names: Sequence[str],
    label: str,
    columns: Sequence[tuple[str, Sequence[Any]]] = (),
    *,
    detailed: bool = False,
) -> str:
    """Return drawings whose i-th points are the same thing, called ``names[i]``, and are marked together.

    ``columns`` are values of the things that all drawings share; ``label`` says what the points are.
    ``detailed``: the i-th record of the page shows the thing that is picked.
    """
    document = {
        "label": label,
        "names": list(names),
        "columns": [[name, list(values)] for name, values in columns],
        "plots": [plot.to_json() for plot in plots],
    }
    mark = " data-detail" if detailed else ""
    return f'<div class="linked"{mark}>{drawn}{data(document, "points")}</div>'
