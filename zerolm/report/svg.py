"""Drawings as static SVG: axes, points, lines and bands, in pixels of the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from zerolm.report.page import GREY, INK

GRID, SOFT = "#e4e7eb", "#52606d"
WIDE: Final = 8.0
"""Positive values whose largest is this many times their smallest are drawn on a logarithmic axis."""
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from ``low`` to ``high`` onto pixels from ``start`` to ``stop``."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.stop - self.start)

    def ticks(self, room: float) -> list[float]:
        """Round values, each with ``room`` pixels or more to itself."""
        most = abs(self.stop - self.start) / room
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


def axis(values: Iterable[float], start: float, stop: float, *, pad: float = 0.05, wide: bool = True) -> Axis:
    """An axis that shows all the values; logarithmic, if ``wide``, where positive ones spread widely."""
    numbers = list(values)
    low, high = min(numbers), max(numbers)
    if wide and low > 0 and high / low >= WIDE:
        room = (high / low) ** pad
        return Axis(low / room, high * room, start, stop, log=True)
    room = pad * (high - low) or 0.05 * abs(high) or 1.0
    return Axis(low - room, high + room, start, stop)


def amount(value: float) -> str:
    """A short number: 0.05, 12, 3.5k, 40M."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (10 if unit == "k" else 1):
            return f"{value / size:.6g}{unit}"
    return f"{value:.6g}" if abs(value) > 1e-12 else "0"


def drawing(width: float, height: float, marks: Iterable[str], label: str) -> str:
    """The whole drawing; ``label`` says what it shows to those who do not see it."""
    head = f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}"'
    return f"<svg {head}>{''.join(marks)}</svg>"


def text(
    x: float, y: float, words: str, *, anchor: str = "middle", colour: str = SOFT, turn: bool = False
) -> str:
    look = f'text-anchor="{anchor}" fill="{colour}"'
    look += f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turn else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(words)}</text>'


def rule(a: Point, b: Point, colour: str = GRID, *, width: float = 1.0, dash: str = "") -> str:
    """A straight line."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<path d="M{a[0]:.1f} {a[1]:.1f}L{b[0]:.1f} {b[1]:.1f}" stroke="{colour}" '
        f'stroke-width="{width:g}"{dashed}/>'
    )


def curve(points: Sequence[Point], colour: str, *, width: float = 2.0, dash: str = "") -> str:
    """A line through points."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dashed}/>'


def area(points: Sequence[Point], colour: str, opacity: float = 0.13) -> str:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{path}Z" fill="{colour}" fill-opacity="{opacity:g}"/>'


def dot(at: Point, colour: str, title: str = "", *, radius: float = 4.0, hollow: bool = False) -> str:
    """A point that says ``title`` when it is pointed at."""
    look = f'fill="white" stroke="{colour}" stroke-width="1.8"' if hollow else f'fill="{colour}"'
    tip = f"<title>{escape(title)}</title>" if title else ""
    return f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius:g}" {look}>{tip}</circle>'


def diamond(at: Point, colour: str, title: str = "", *, radius: float = 6.0) -> str:
    (x, y), r = at, radius
    corners = f"{x:.1f},{y - r:.1f} {x + r:.1f},{y:.1f} {x:.1f},{y + r:.1f} {x - r:.1f},{y:.1f}"
    return f'<polygon points="{corners}" fill="{colour}"><title>{escape(title)}</title></polygon>'


def frame(x: Axis, y: Axis, x_name: str, y_name: str) -> str:
    """The grid of a plot, its ticks, and what the axes show."""
    left, right, bottom, top = x.start, x.stop, y.start, y.stop
    marks = [rule((left, y(t)), (right, y(t))) for t in y.ticks(34)]
    marks += [text(left - 6, y(t) + 4, amount(t), anchor="end") for t in y.ticks(34)]
    marks += x_ticks(x, bottom, top)
    marks.append(rule((left, bottom), (right, bottom), GREY))
    marks.append(text((left + right) / 2, bottom + 36, x_name, colour=INK))
    marks.append(text(left - 46, (top + bottom) / 2, y_name, colour=INK, turn=True))
    return "".join(marks)


def x_ticks(x: Axis, bottom: float, top: float) -> list[str]:
    """Vertical grid lines with their values below."""
    ticks = x.ticks(52)
    lines = [rule((x(t), bottom), (x(t), top)) for t in ticks]
    return lines + [text(x(t), bottom + 17, amount(t)) for t in ticks]
