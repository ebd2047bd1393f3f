"""Charts of one benchmark: gains with intervals, results against scores, alpha, regret."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from zerolm.calibration.alpha import GRID
from zerolm.comparison.results import AlphaPoint, ScoreRow, Section, by_tau, in_own_unit, label_free, row_of
from zerolm.show.charts import (
    LINEAR,
    Area,
    Band,
    Bar,
    Bars,
    Dots,
    Key,
    Level,
    Line,
    Linked,
    Mark,
    Pair,
    Plot,
    Sign,
    amount,
    axis,
    from_zero,
    signed_tick,
)
from zerolm.show.text import short, show_number
from zerolm.statistics import regret_curve

STEP: Final = GRID[1] - GRID[0]
SCATTERED: Final = 1000
"""Architectures that a chart shows, evenly spread."""
ALONE: Final = (0.0, 1.0)
"""Alphas at which one kind of matrices counts alone: their ties are others, so no line goes through them."""
GAIN_KEYS: Final[tuple[Key, ...]] = (
    ("dot", "blue", "beats counting parameters"),
    ("ring", "blue", "not, or not shown to"),
    ("dot", "grey", "baseline"),
    ("diamond", "orange", "saw the labels"),
)


def gains(section: Section) -> list[Bars]:
    """Return the gain of each score in tau-b over counting body parameters, with its paired interval.

    The axis holds all scores but the baselines; one beyond it is an arrow at the edge. The list is empty
    where all architectures have equal body parameters.
    """
    rows = [row for row in by_tau(section) if row.gain is not None and row.tau is not None]
    base = row_of(section, "body_params")
    if not rows or base is None or base.tau is None:
        return []
    near = [row for row in rows if not row.baseline or row.score == "body_params"]
    ends = [value for row in near for value in (row.gain, row.gain_low, row.gain_high) if value is not None]
    levels = [(base.tau, "ink", f"body parameters at tau-b {show_number(base.tau)}")]
    if section.published and section.published.tau is not None:
        tau = section.published.tau
        levels.append((tau, "green", f"best published at {show_number(tau)}"))
    if section.ceiling:
        levels.append((section.ceiling.tau, "orange", f"noise ceiling at {section.ceiling.tau:.2f}"))
    rules = [(tau - base.tau, colour) for tau, colour, _ in levels]
    keys: list[Key] = [*GAIN_KEYS, *(("dashes", colour, text) for _, colour, text in levels)]
    name = "tau-b above that of body parameters, paired 95 % interval"
    x = axis([*ends, *(value for value, _ in rules)], name, wide=LINEAR, form=signed_tick)
    bars = [_gain(row) for row in rows]
    return [
        Bars(f"tau-b of every score on {section.title} above that of body parameters", x, bars, rules, keys)
    ]


def _gain(row: ScoreRow) -> Bar:
    if row.saw_labels:
        mark, colour = "diamond", "orange"
    elif row.baseline:
        mark, colour = "dot", "grey"
    else:
        mark, colour = "dot" if row.verdict == "better" else "ring", "blue"
    text = f"tau-b {show_number(row.tau)}"
    return Bar(row.label, row.gain, text, colour, row.gain_low, row.gain_high, mark)


def scatters(section: Section) -> Linked:
    """Return result against score for ``geo``, body parameters and the best other label-free score."""
    best = next((row for row in label_free(section) if row.score != "geo"), None)
    rows = [row_of(section, "geo"), row_of(section, "body_params"), best]
    count = len(section.result)
    most = min(count, SCATTERED)
    few = [place * count // most for place in range(most)]
    results = in_own_unit(section)[few].tolist()
    y, plots = axis(results, unit(section)), []
    for row in (row for row in rows if row is not None):
        values, name = section.scores[row.label][few].tolist(), short(row.label, 30)
        points = list(zip(values, results, strict=True))
        dots = Dots(points, "grey" if row.baseline else "blue", 5, 0.6)
        label = f"{section.metric} against {row.label} on {section.title}"
        caption = f"tau-b {'not defined' if row.tau is None else show_number(row.tau)}"
        columns = [(name, _digits(values))]
        x = axis(values, name)
        plots.append(Plot(label, x, y, [dots], (), 260, caption, points, columns))
    names = [section.truth.architectures[place].id for place in few]
    shared = [(short(section.metric, 24), _digits(results))]
    return Linked(plots, names, "Architectures", shared)


def _digits(values: Sequence[float]) -> list[Any]:
    return [float(f"{value:.5g}") if abs(value) < 1e5 else amount(float(f"{value:.4g}")) for value in values]


def alpha_curve(section: Section) -> list[Linked]:
    """Return tau-b of ``zerolm`` against alpha, its plateau, the best alpha and the fixed ones.

    A line goes through the alphas that mix both kinds of matrices; the list is empty where all their scores
    are ties.
    """
    points = [(point.alpha, point.tau) for point in section.curve if point.tau is not None]
    mixed = [point for point in section.curve if point.alpha not in ALONE]
    line = [(point.alpha, point.tau) for point in mixed if point.tau is not None]
    if not line:
        return []
    fixed = [
        (float(row.alpha), row.tau)
        for row in section.rows
        if isinstance(row.alpha, int | float) and row.tau is not None
    ]
    band = _band(mixed)
    levels, keys = _levels(section)
    x = axis(
        [alpha for alpha, _ in (*points, *fixed)], "alpha (0: FFN alone, 1: attention alone)", wide=LINEAR
    )
    taus = [tau for _, tau in (*points, *fixed, *band)] + [level.y for level in levels]
    y = axis(taus, "tau-b", wide=LINEAR)
    marks: list[Mark] = [Area(band, "blue")] if band else []
    keys = [("bar", "blue", "zerolm, 95 %"), *keys]
    if section.plateau:
        low, high = section.plateau
        marks.insert(0, Band(low - STEP / 2, high + STEP / 2, "orange", upright=True))
        keys.insert(1, ("band", "orange", f"level with the best: {stretch(low, high)}"))
    marks += [*levels, Line(line, "blue"), Dots([point for point in points if point[0] in ALONE], "blue", 7)]
    marks += [Sign("ring", point, "blue") for point in fixed]
    best = row_of(section, "zerolm", saw_labels=True)
    if best is not None and best.tau is not None and best.best_alpha is not None:
        marks.append(Sign("diamond", (best.best_alpha, best.tau), "orange"))
        keys.append(("diamond", "orange", f"best {best.best_alpha:g} (saw the labels)"))
    columns = [("tau-b", [show_number(tau) for _, tau in points])]
    label = f"tau-b of zerolm against alpha on {section.title}"
    plot = Plot(label, x, y, marks, keys, 250, points=points, columns=columns)
    return [Linked([plot], [f"alpha {alpha:g}" for alpha, _ in points], "Alphas")]


def _band(curve: Sequence[AlphaPoint]) -> list[Pair]:
    """Return the outline of the intervals along a curve; nothing where there are none."""
    lower = [(point.alpha, point.low) for point in curve if point.low is not None]
    upper = [(point.alpha, point.high) for point in curve if point.high is not None]
    return [*lower, *reversed(upper)] if lower and upper else []


def _levels(section: Section) -> tuple[list[Level], list[Key]]:
    """Return lines at the tau-b of body parameters and of ``geo``."""
    levels: list[Level] = []
    keys: list[Key] = []
    for name, colour, dash in (("body_params", "grey", ""), ("geo", "green", "6 4")):
        row = row_of(section, name)
        if row is not None and row.tau is not None:
            levels.append(Level(row.tau, colour, dash))
            keys.append(("dashes" if dash else "bar", colour, name))
    return levels, keys


def regrets(section: Section) -> Linked:
    """Return the regret of the highest-scored within each budget of body parameters."""
    curves, budgets = list(_regret_lines(section)), section.budgets.tolist()
    x = axis(budgets, "budget of body parameters")
    y = from_zero(
        (value for *_, values in curves for value in values), f"regret, {short(section.metric, 20)}"
    )
    marks: list[Mark] = []
    keys: list[Key] = []
    points: list[Pair] = []
    names: list[str] = []
    for name, colour, dash, values in curves:
        line = list(zip(budgets, values, strict=True))
        marks.append(Line(line, colour, dash, step=True))
        keys.append(("dashes" if dash else "bar", colour, name))
        points += line
        names += [f"{name}: {v:.3g} within {amount(float(f'{b:.3g}'))}" for b, v in line]
    plot = Plot(f"regret against budget on {section.title}", x, y, marks, keys, 250, points=points)
    return Linked([plot], names, "Budgets")


def _regret_lines(section: Section) -> Iterator[tuple[str, str, str, list[float]]]:
    """Yield name, colour, dashes and the regret (19,) of each curve."""
    cost = section.scores["body_params"]
    yield "random choice", "grey", "2 4", regret_curve(np.zeros(len(cost)), section.result, cost, 1).tolist()
    best = row_of(section, "zerolm", saw_labels=True)
    if best is not None:
        yield best.label, "orange", "", section.regrets[best.label].tolist()
    yield "body_params", "grey", "", section.regrets["body_params"].tolist()
    if "geo" in section.regrets:
        yield "geo", "blue", "", section.regrets["geo"].tolist()


def unit(section: Section) -> str:
    better = "higher" if section.truth.is_higher_better(section.metric) else "lower"
    return f"{short(section.metric, 24)} ({better} is better)"


def stretch(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
