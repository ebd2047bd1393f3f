"""Charts as plain data: bars, plots, strips of layers, maps and records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

WIDE, LINEAR = 8.0, math.inf
"""Positive values whose largest is this many times their smallest are drawn on a logarithmic axis."""
Pair = tuple[float, float]
Key = tuple[str, str, str]
"""A line of a legend: a mark, its colour, and what it stands for."""
Columns = Sequence[tuple[str, Sequence[Any]]]
"""Values by name, one for each point."""


def amount(value: float) -> str:
    """Return a short number: 0.05, 12, 3.5k, 40M."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (10 if unit == "k" else 1):
            return f"{value / size:.6g}{unit}"
    return f"{value:.6g}" if abs(value) > 1e-12 else "0"


def signed_tick(value: float) -> str:
    """Return a change as a tick says it: +0.2, 0."""
    return f"{value:+.2g}" if abs(value) > 1e-12 else "0"


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
        """Return at most ``most`` round values, sometimes one more."""
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


def from_zero(values: Iterable[float], name: str) -> Axis:
    """Return a linear axis that begins at 0, or at the lowest value where that lies below."""
    numbers = [0.0, *values]
    return Axis(min(numbers), axis(numbers, name, wide=LINEAR).high, name)


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with its interval, its label, and how it is drawn: as a ``bar``, or as that mark."""

    name: str
    value: float | None
    text: str
    colour: str = "blue"
    low: float | None = None
    high: float | None = None
    kind: str = "bar"


@dataclass(frozen=True, slots=True)
class Bars:
    """Rows with a name, a bar and a text; ``rules`` are values and colours of lines through all of them."""

    label: str
    axis: Axis
    rows: Sequence[Bar]
    rules: Sequence[tuple[float, str]] = ()
    keys: Sequence[Key] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """A line through points, in ``step``s that are level first."""

    points: Sequence[Pair]
    colour: str
    dash: str = ""
    step: bool = False


@dataclass(frozen=True, slots=True)
class Area:
    """A filled polygon."""

    points: Sequence[Pair]
    colour: str
    opacity: float = 0.15


@dataclass(frozen=True, slots=True)
class Band:
    """The stretch between two values of y, or of x where ``upright``, as far as it is on the axis."""

    low: float
    high: float
    colour: str
    upright: bool = False


@dataclass(frozen=True, slots=True)
class Level:
    """A line from left to right."""

    y: float
    colour: str
    dash: str = ""


@dataclass(frozen=True, slots=True)
class Dots:
    """Many round points."""

    points: Sequence[Pair]
    colour: str
    size: float = 6
    opacity: float = 1.0


@dataclass(frozen=True, slots=True)
class Sign:
    """One point as a mark of its own, which says ``title`` when it is pointed at."""

    kind: str
    point: Pair
    colour: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """A vertical line that says what ends there."""

    x: float
    text: str


Mark = Line | Area | Band | Level | Dots | Sign | Limit


@dataclass(frozen=True, slots=True)
class Plot:
    """Marks between two axes; ``label`` says what they show to those who do not see it.

    ``points`` can be pointed at, with ``columns`` of their values; they belong to ``Linked`` plots.
    """

    label: str
    x: Axis
    y: Axis
    marks: Sequence[Mark]
    keys: Sequence[Key] = ()
    height: int = 300
    caption: str = ""
    points: Sequence[Pair] = ()
    columns: Columns = ()


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """One layer: its residual ``width``, the widths of queries and keys, and of the FFN within.

    ``heads`` is 0 where their number is not known; all are 0 of a layer that is gone.
    """

    width: int
    queries: int
    keys: int
    heads: int
    ffn: int


@dataclass(frozen=True, slots=True)
class Strips:
    """Networks layer by layer, input to the left, each by its name."""

    networks: Sequence[tuple[str, Sequence[LayerSizes]]]


@dataclass(frozen=True, slots=True)
class Record:
    """A thing that can be picked: what it is, its values, its layers, and what a command of it takes."""

    roles: str
    words: str
    values: Sequence[str]
    layers: Sequence[LayerSizes]
    argument: str
    file: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Records:
    """Things of which one is shown in detail: the one that is picked, the first one else.

    ``names`` are of their values. The command is ``before``, the quoted argument, and ``after``.
    """

    label: str
    names: Sequence[str]
    before: str
    after: str
    caption: str
    file_name: str
    records: Sequence[Record]


@dataclass(frozen=True, slots=True)
class Linked:
    """Plots whose i-th points are the same thing, called ``names[i]``, and are marked together.

    ``columns`` are values of the things that all plots share; ``label`` says what the points are; the i-th of
    the ``records`` shows the thing that is picked.
    """

    plots: Sequence[Plot]
    names: Sequence[str]
    label: str
    columns: Columns = ()
    records: Records | None = None


@dataclass(frozen=True, slots=True)
class Heat:
    """A map of numbers with their texts; ``ends`` are the values of the lightest and the darkest cell."""

    title: str
    columns: Sequence[str]
    rows: Sequence[str]
    values: Sequence[Sequence[float]]
    texts: Sequence[Sequence[str]]
    ends: tuple[float, float]


Chart = Bars | Plot | Linked | Strips | Heat


def curve(points: Sequence[Pair], name: str, marks: Sequence[Mark] = (), keys: Sequence[Key] = ()) -> Linked:
    """Return how a measure went over the tokens trained on, with further ``marks``; at least two points."""
    first, last = points[0][1], points[-1][1]
    plot = Plot(
        f"{name} against tokens, from {first:.4f} to {last:.4f}",
        axis([x for x, _ in points], "tokens trained on", wide=LINEAR, pad=0.02),
        axis([y for _, y in points], name, wide=LINEAR),
        [*marks, Line(points, "blue"), Dots(points, "blue", 9)],
        keys=keys,
        points=points,
        columns=[(name.partition(" ")[0], [f"{y:.4f}" for _, y in points])],
    )
    return Linked([plot], [f"{amount(round(x))} tokens" for x, _ in points], "measure")
