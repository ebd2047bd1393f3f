"""The figures of the README and the documentation, as SVG: ``python docs/figures.py`` writes them again.

They are drawn from the leaderboard and by the scores themselves; a test holds that the files agree.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import evidence  # noqa: E402
import rooms  # noqa: E402

from zerolm.architecture import Architecture, Ends, Layer, Matrix  # noqa: E402
from zerolm.scores import make_score  # noqa: E402

ASSETS = HERE / "assets"
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 15px }
.small { font-size: 12px; fill: #57606a }
.end { text-anchor: end } .mid { text-anchor: middle }
.axis { stroke: #8c959f; fill: none } .grid { stroke: #d8dee4; fill: none }
.geo { fill: #0969da; stroke: #0969da } .count { fill: #bc4c00; stroke: #bc4c00 }
.third { fill: #1a7f37; stroke: #1a7f37 } .dot { fill: #8c959f; opacity: .35 }
.line { fill: none; stroke-width: 2.5 } .bar { stroke-width: 3; opacity: .45 }
.band { stroke: none; opacity: .2 }
text.geo, text.count, text.third { stroke: none } .room { fill: #f6f8fa; stroke: #d0d7de }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 } .axis { stroke: #6e7681 } .grid { stroke: #30363d }
.geo { fill: #58a6ff; stroke: #58a6ff } .count { fill: #f0883e; stroke: #f0883e }
.third { fill: #3fb950; stroke: #3fb950 } .line { fill: none } .room { fill: #161b22; stroke: #30363d }
}
</style>"""


def svg(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """Return a picture that reads in light and in dark."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{escape(title)}">'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", STYLE, *parts, "</svg>\n"])


def text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def dot(x: float, y: float, kind: str, size: float = 6) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:g}" class="{kind}"/>'


def band(low: Iterable[tuple[float, float]], high: Iterable[tuple[float, float]], kind: str) -> str:
    points = [*low, *reversed(list(high))]
    return f'<polygon class="band {kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def curve(points: Iterable[tuple[float, float]], kind: str) -> str:
    return f'<polyline class="line {kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def equal_size() -> str:
    """Draw how well geo and counting rank networks of about equal size, on every published view."""
    rows = sorted(
        ((name, scores["geo"], scores["body_params"]) for name, scores in evidence.views().items()),
        key=lambda row: -row[1].in_budgets,
    )
    left, right, top, step = 210, 690, 84, 28
    bottom = top + step * (len(rows) - 1)

    def place(tau: float) -> float:
        return left + (tau + 0.1) * (right - left) / 1.1

    parts = [
        text(16, 26, "Ranking networks of about equal size by their trained quality", "title"),
        text(16, 46, "Kendall's tau-b within deciles of body parameters; 1 is perfect, 0 is chance", "small"),
    ]
    for tick in (0, 0.2, 0.4, 0.6, 0.8, 1):
        kind = "axis" if tick == 0 else "grid"
        parts.append(line(place(tick), top - 14, place(tick), bottom + 14, kind))
        parts.append(text(place(tick), bottom + 32, f"{tick:g}", "small mid"))
    for index, (name, geo, counted) in enumerate(rows):
        y = top + step * index
        parts.append(text(left - 22, y + 4, name, "end"))
        parts.append(line(place(counted.in_budgets), y, place(geo.in_budgets), y, "bar geo"))
        parts.append(dot(place(counted.in_budgets), y, "count"))
        parts.append(dot(place(geo.in_budgets), y, "geo"))
    y = bottom + 58
    parts += [dot(left, y - 4, "count"), text(left + 12, y, "counting body parameters")]
    parts += [dot(left + 210, y - 4, "geo"), text(left + 222, y, "geo, without training or labels")]
    return svg(720, bottom + 74, "geo ranks networks of equal size better than counting on all views", parts)


def plot(
    title: str,
    below: str,
    across: tuple[str, Sequence[float], Sequence[float]],
    lines: Sequence[tuple[str, str, int, Sequence[float]]],
    *,
    most: float = 1,
    spread: tuple[str, Sequence[float], Sequence[float]] | None = None,
) -> str:
    """Draw shares of 1, up to ``most``, over a logarithmic axis.

    ``across`` is the name of the axis, its ticks and where the values lie; a line has a name, a kind, the
    value below which its name stands (beside the last), and its values. ``spread`` is a band behind the
    lines: its kind, its lower and its upper values.
    """
    left, right, top, bottom = 60, 560, 70, 300
    name, marks, places = across

    def x(value: float) -> float:
        return left + math.log(value / marks[0]) / math.log(marks[-1] / marks[0]) * (right - left)

    def y(value: float) -> float:
        return bottom - value / most * (bottom - top)

    def points(values: Sequence[float]) -> list[tuple[float, float]]:
        return [(x(place), y(value)) for place, value in zip(places, values, strict=True)]

    parts = [text(16, 26, title, "title"), text(16, 46, below, "small")]
    for tick in (0.25, 0.5, 0.75, 1):
        parts += [
            line(left, y(tick), right, y(tick), "grid"),
            text(left - 8, y(tick) + 4, f"{tick:g}", "small end"),
        ]
    parts += [text(x(mark), bottom + 20, f"{mark:g}", "small mid") for mark in marks]
    parts += [line(left, bottom, right, bottom, "axis")]
    parts += [text((left + right) / 2, bottom + 42, name, "small mid")]
    if spread:
        kind, low, high = spread
        parts.append(band(points(low), points(high), kind))
    for label, kind, at, values in lines:
        parts.append(curve(points(values), kind))
        below_it = 4 if at == len(places) - 1 else 18
        parts.append(text(x(places[at]) + 10, y(values[at]) + below_it, label, kind))
    return svg(720, bottom + 56, title, parts)


def network(layers: int, width: int, ffn: int) -> Architecture:
    """Return a plain network: four attention matrices and two of the FFN in each layer."""
    attention = tuple(Matrix("attention", width, width) for _ in range(4))
    matrices = (*attention, Matrix("ffn", ffn, width), Matrix("ffn", width, ffn))
    layer = Layer(matrices, width, width, width)
    return Architecture("figure", {}, (layer,) * layers, Ends(32_000 * width, tied_head=32_000 * width))


def relative(score: str, networks: Sequence[Architecture]) -> list[float]:
    """Return the scores of networks over the largest of them."""
    values = make_score(score).of_many(networks)
    return [float(value) for value in values / values.max()]


def ffn_share() -> str:
    """Draw what scores say of 8 layers of equal size as the FFN grows at the expense of attention."""
    ratios = [2 ** (step / 4) for step in range(-8, 13)]
    sizes = [(math.sqrt(12 * 1024**2 / (4 + 4 * ratio)), ratio) for ratio in ratios]
    networks = [network(8, round(width), round(2 * width * ratio)) for width, ratio in sizes]
    return plot(
        "At equal size, geo wants attention and FFN in balance",
        "Score over its largest value; 8 layers of 12.6 M weights each",
        ("FFN weights over attention weights", (0.25, 0.5, 1, 2, 4, 8), ratios),
        [("counting", "count", 17, [1.0] * len(ratios)), ("geo", "geo", 10, relative("geo", networks))],
    )


def depth() -> str:
    """Draw what scores say of networks of equal size and ratios as they become deeper and narrower."""
    layers = [1, 2, 4, 8, 16, 32, 64]
    networks = [network(count, width := round(2048 / math.sqrt(count)), 4 * width) for count in layers]
    return plot(
        "At equal size and equal ratios, geo cannot tell deep from wide",
        "Score over its largest value; 50 M weights in the layers",
        ("layers", layers, layers),
        [
            ("geo, counting", "geo", 1, relative("geo", networks)),
            ("geo_saturating", "third", 3, relative("geo_saturating", networks)),
            ("log_complexity", "count", 4, relative("log_complexity", networks)),
        ],
    )


def ratio() -> str:
    """Draw what a ratio of FFN to attention is worth in parameters: by geo, and in trained llamas."""
    rows = evidence.ratio_worth()
    ratios, last = [row.ratio for row in rows], len(rows) - 1
    low, high = ([row.interval[end] for row in rows] for end in (0, 1))
    return plot(
        "What a ratio is worth: geo, and llamas trained at equal size",
        "Parameters that FFNs three times attention would need to be as good, over those that it has",
        ("FFN weights over attention weights", ratios, ratios),
        [
            ("trained, with 95 %", "third", last, [row.trained for row in rows]),
            ("geo", "geo", last, [row.geo for row in rows]),
        ],
        most=1.4,
        spread=("third", low, high),
    )


def carved() -> str:
    """Draw the perplexity of a llama that several methods cut to equal sizes, against the parameters left."""
    left, right, top, bottom = 60, 560, 70, 300
    low, high = 16, 28

    def place(point: tuple[float, float]) -> tuple[float, float]:
        share, perplexity = point
        across, up = (share - 0.4) / 0.6, (perplexity - low) / (high - low)
        return left + across * (right - left), bottom - up * (bottom - top)

    parts = [
        text(16, 26, "A small llama, cut smaller: perplexity against size", "title"),
        text(16, 46, "Equal sizes, everything that is stored counted; nothing is trained", "small"),
    ]
    for tick in range(low, high + 1, 4):
        _, y = place((1, tick))
        parts += [line(left, y, right, y, "grid"), text(left - 8, y + 4, f"{tick}", "small end")]
    for share in (0.4, 0.5, 0.75, 1):
        x, _ = place((share, low))
        parts.append(text(x, bottom + 20, f"{share:.0%}", "small mid"))
    parts.append(line(left, bottom, right, bottom, "axis"))
    parts.append(text((left + right) / 2, bottom + 42, "parameters of the layers that are kept", "small mid"))
    names = {"slicegpt": "SliceGPT", "units": "KV groups and FFN alone", "carve": "zerolm carve"}
    kinds = {"slicegpt": "count", "units": "third", "carve": "geo"}
    for row, (method, name) in enumerate(names.items()):
        points = [place(point) for point in evidence.carved()[method]]
        parts.append(curve(points, kinds[method]))
        parts += [dot(x, y, kinds[method], 4) for x, y in points]
        parts.append(dot(right - 190, top + 20 + 22 * row - 4, kinds[method], 5))
        parts.append(text(right - 178, top + 20 + 22 * row, name, kinds[method]))
    x, y = place(evidence.carved()["carve"][0])
    parts.append(text(x + 12, y + 4, "the parent", "small"))
    return svg(720, bottom + 56, "zerolm carve loses less than SliceGPT at equal sizes", parts)


def by_bytes() -> str:
    """Draw what a llama loses by quantisation types, by cuts, and by both, against its bytes."""
    left, right, top, bottom = 70, 600, 70, 340
    sizes, losses = (1.9, 14.0), (1e-4, 1.0)

    def place(point: tuple[float, float]) -> tuple[float, float]:
        across, up = (
            math.log(value / low) / math.log(high / low)
            for value, (low, high) in zip(point, (sizes, losses), strict=True)
        )
        return left + across * (right - left), bottom - up * (bottom - top)

    parts = [
        text(16, 26, "What a byte buys: KL to the parent against the bytes of all weights", "title"),
        text(16, 46, "A llama of 7.34 M parameters, 14.7 MB at 16 bits; nothing is trained", "small"),
    ]
    for power in range(-4, 1):
        _, y = place((sizes[0], 10.0**power))
        parts += [line(left, y, right, y, "grid"), text(left - 8, y + 4, f"{10.0**power:g}", "small end")]
    for size in (2, 3, 4, 6, 8, 12):
        x, _ = place((size, losses[0]))
        parts.append(text(x, bottom + 20, f"{size} MB", "small mid"))
    parts.append(line(left, bottom, right, bottom, "axis"))
    names = {
        "types": "types alone, repaired",
        "both": "cuts and types together",
        "cuts": "cuts alone, 16 bits",
    }
    kinds = {"types": "geo", "both": "third", "cuts": "count"}
    for row, (way, points) in enumerate((way, evidence.by_bytes()[way]) for way in names):
        placed = [place(point) for point in points]
        parts.append(curve(placed, kinds[way]))
        parts += [dot(x, y, kinds[way], 4) for x, y in placed]
        parts.append(dot(right - 180, top + 20 + 22 * row - 4, kinds[way], 5))
        parts.append(text(right - 168, top + 20 + 22 * row, names[way], kinds[way]))
    return svg(
        720,
        bottom + 36,
        "Quantisation types lose least by far, cuts and types together where types end",
        parts,
    )


CORE_ROOMS = frozenset({
    *("progress", "cost_columns", "settings", "registry", "io", "architecture", "costs", "pretraining"),
    *("statistics", "scores", "families", "spaces", "solvers", "calibration", "groundtruth", "comparison"),
})  # fmt: skip
"""Rooms that need neither torch nor the terminal."""


def rooms_of_the_package() -> str:
    """Draw the rooms, each below those that it imports; lines show imports that no other import implies."""
    by_level: dict[int, list[str]] = {}
    for room in rooms.imports():
        by_level.setdefault(rooms.level(room), []).append(room)
    places: dict[str, tuple[float, float]] = {}
    for number in sorted(by_level):
        row = sorted(by_level[number], key=lambda room: _mean_place(room, places))
        for index, room in enumerate(row):
            places[room] = 720 * (index + 0.5) / len(row), 40 + 52 * number
    parts = [
        line(places[target][0], places[target][1] + 16, x, y - 16, "axis")
        for room, (x, y) in places.items()
        for target in sorted(rooms.direct(room))
    ]
    for room, (x, y) in places.items():
        kind = "geo" if room in CORE_ROOMS else "third" if room == "lab" else "count"
        parts += [
            f'<rect x="{x - 70:.1f}" y="{y - 16:.1f}" width="140" height="32" rx="5" class="room"/>',
            f'<rect x="{x - 70:.1f}" y="{y - 16:.1f}" width="5" height="32" class="{kind}"/>',
            text(x, y + 5, room, "mid"),
        ]
    height = 40 + 52 * len(by_level)
    keys = (
        ("geo", "core: no torch, no terminal"),
        ("count", "torch, files, terminal"),
        ("third", "laboratory"),
    )
    for index, (kind, words) in enumerate(keys):
        parts += [
            dot(30 + 260 * index, height - 6, kind, 5),
            text(42 + 260 * index, height - 2, words, "small"),
        ]
    title = "Rooms of the package: each stands below those that it imports"
    return svg(720, height + 10, title, parts)


def _mean_place(room: str, places: dict[str, tuple[float, float]]) -> float:
    """Return the mean horizontal place of what a room imports."""
    above = [places[target][0] for target in rooms.direct(room)]
    return sum(above) / len(above) if above else 0.0


FIGURES = {
    "bits": by_bytes,
    "carved": carved,
    "equal_size": equal_size,
    "ffn_share": ffn_share,
    "depth": depth,
    "ratio": ratio,
    "rooms": rooms_of_the_package,
}


def main() -> None:
    """Write every figure."""
    ASSETS.mkdir(exist_ok=True)
    for name, draw in FIGURES.items():
        (ASSETS / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
