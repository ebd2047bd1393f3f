"""The drawings of one benchmark: gains with intervals, results against scores, alpha, regret."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from zerolm.calibration.alpha import GRID
from zerolm.comparison.results import ScoreRow, Section
from zerolm.report.bars import BarRow, bars, signed_tick
from zerolm.report.chart import LINEAR, Axis, Frame, Plot, amount, axis, legend, linked
from zerolm.report.page import note
from zerolm.report.rows import by_tau, in_own_unit, label_free, row_of, short, unit
from zerolm.statistics import regret_curve

STEP: Final = GRID[1] - GRID[0]
SCATTERED: Final = 1000
"""Architectures that a drawing shows, evenly spread."""


def gains(section: Section, narrow: bool = False) -> str:
    """Return what each score gains in tau-b over counting body parameters, with its paired interval.

    The axis holds all scores but the baselines; one beyond it is an arrow at the edge.
    """
    rows = [row for row in by_tau(section) if row.gain is not None and row.tau is not None]
    base = row_of(section, "body_params")
    if not rows or base is None or base.tau is None:
        return note("No gain over body parameters is defined: they tell none of these architectures apart.")
    near = [row for row in rows if not row.baseline or row.score == "body_params"]
    ends = [value for row in near for value in (row.gain, row.gain_low, row.gain_high) if value is not None]
    rules, keys = [(0.0, "ink")], [("dashes", "ink", f"body parameters at tau-b {base.tau:.3f}")]
    if section.published and section.published.tau is not None:
        rules.append((section.published.tau - base.tau, "green"))
        keys.append(("dashes", "green", f"best published at {section.published.tau:.3f}"))
    if section.ceiling:
        rules.append((section.ceiling.tau - base.tau, "orange"))
        keys.append(("dashes", "orange", f"noise ceiling at {section.ceiling.tau:.2f}"))
    name = "tau-b above that of body parameters, paired 95 % interval"
    x = axis([*ends, *(value for value, _ in rules)], name, wide=LINEAR, form=signed_tick)
    marks = [
        ("dot", "blue", "beats counting parameters"),
        ("ring", "blue", "not, or not shown to"),
        ("dot", "grey", "baseline"),
        ("diamond", "orange", "saw the labels"),
    ]
    lines = [
        BarRow(
            row.label,
            row.gain,
            f"tau-b {row.tau:.3f}",
            *_look(row)[1:],
            row.gain_low,
            row.gain_high,
            _look(row)[0],
        )
        for row in rows
    ]
    title = f"tau-b of every score on {section.title} above that of body parameters"
    return legend(*marks, *keys) + bars(lines, x, title, rules, narrow=narrow)


def _look(row: ScoreRow) -> tuple[str, str]:
    if row.saw_labels:
        return "diamond", "orange"
    if row.baseline:
        return "dot", "grey"
    return ("dot" if row.verdict == "better" else "ring"), "blue"


def scatters(section: Section) -> str:
    """Return result against score for ``geo``, body parameters and the best other label-free score."""
    best = next((row for row in label_free(section) if row.score != "geo"), None)
    rows = [row_of(section, "geo"), row_of(section, "body_params"), best]
    few = _spread(len(section.result))
    results = in_own_unit(section)[few].tolist()
    y, drawn, plots = axis(results, unit(section)), [], []
    for row in (row for row in rows if row is not None):
        values = section.scores[row.label][few].tolist()
        frame = Frame(axis(values, short(row.label, 30)), y, 260)
        points = list(zip(values, results, strict=True))
        dots = frame.dots(points, "grey" if row.baseline else "blue", size=5, opacity=0.6)
        tau = "not defined" if row.tau is None else f"{row.tau:.3f}"
        label = f"{section.metric} against {row.label} on {section.title}"
        title = f"<figcaption>tau-b {tau}</figcaption>"
        drawn.append(f"<figure>{title}{frame.html([dots], label)}</figure>")
        plots.append(Plot(frame, points, [(short(row.label, 30), _digits(values))]))
    names = [section.truth.architectures[place].id for place in few]
    shared = [(short(section.metric, 24), _digits(results))]
    return linked(f'<div class="triple">{"".join(drawn)}</div>', plots, names, "Architectures", shared)


def _spread(count: int) -> list[int]:
    most = min(count, SCATTERED)
    return [place * count // most for place in range(most)]


def _digits(values: Sequence[float]) -> list[Any]:
    return [float(f"{value:.5g}") if abs(value) < 1e5 else amount(float(f"{value:.4g}")) for value in values]


def alpha_curve(section: Section) -> str:
    """Return tau-b of ``zerolm`` against alpha, its plateau, the best alpha and the fixed ones."""
    points = [(point.alpha, point.tau) for point in section.curve if point.tau is not None]
    if not points:
        return note("No alpha tells these architectures apart.")
    fixed = [
        (float(row.alpha), row.tau)
        for row in section.rows
        if isinstance(row.alpha, int | float) and row.tau is not None
    ]
    lower = [(point.alpha, point.low) for point in section.curve if point.low is not None]
    upper = [(point.alpha, point.high) for point in section.curve if point.high is not None]
    lines = [(name, row_of(section, name), colour, dash) for name, colour, dash in
             (("body_params", "grey", ""), ("geo", "green", "6 4"))]  # fmt: skip
    levels = [
        (name, row.tau, colour, dash) for name, row, colour, dash in lines if row and row.tau is not None
    ]
    x = axis(
        [alpha for alpha, _ in (*points, *fixed)], "alpha (0: FFN alone, 1: attention alone)", wide=LINEAR
    )
    taus = [tau for _, tau in (*points, *fixed, *lower, *upper)] + [tau for _, tau, _, _ in levels]
    frame = Frame(x, axis(taus, "tau-b", wide=LINEAR), 250)
    marks, keys = [], [("bar", "blue", "zerolm, 95 %")]
    if section.plateau:
        low, high = (end + side * STEP / 2 for end, side in zip(section.plateau, (-1, 1), strict=True))
        ends = frame.y.low, frame.y.high
        marks.append(frame.area([(low, ends[0]), (high, ends[0]), (high, ends[1]), (low, ends[1])], "orange"))
        keys.append(("band", "orange", f"level with the best: {_stretch(*section.plateau)}"))
    if lower and upper:
        marks.append(frame.area([*lower, *reversed(upper)], "blue"))
    for name, tau, colour, dash in levels:
        marks.append(frame.level(tau, colour, dash))
        keys.append(("dashes" if dash else "bar", colour, name))
    marks.append(frame.line(points, "blue"))
    marks += [frame.mark("ring", point, "blue") for point in fixed]
    best = row_of(section, "zerolm", saw_labels=True)
    if best is not None and best.tau is not None and best.best_alpha is not None:
        marks.append(frame.mark("diamond", (best.best_alpha, best.tau), "orange"))
        keys.append(("diamond", "orange", f"best {best.best_alpha:g} (saw the labels)"))
    drawn = legend(*keys) + frame.html(marks, f"tau-b of zerolm against alpha on {section.title}")
    names = [f"alpha {alpha:g}" for alpha, _ in points]
    return linked(
        drawn, [Plot(frame, points, [("tau-b", [f"{tau:.3f}" for _, tau in points])])], names, "Alphas"
    )


def _stretch(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def regrets(section: Section) -> str:
    """Return what the highest-scored lacks to the best within each budget of body parameters."""
    curves, budgets = list(_regret_lines(section)), section.budgets.tolist()
    x = axis(budgets, "budget of body parameters")
    top = axis(
        [0.0, *(value for *_, values in curves for value in values)], f"regret, {short(section.metric, 20)}"
    )
    frame = Frame(x, Axis(0.0, top.high, top.name), 250)
    marks, keys, points, names = [], [], list[tuple[float, float]](), list[str]()
    for name, colour, dash, values in curves:
        line = list(zip(budgets, values, strict=True))
        marks.append(frame.line(line, colour, dash=dash))
        keys.append(("dashes" if dash else "bar", colour, name))
        points += line
        names += [f"{name}: {v:.3g} within {amount(float(f'{b:.3g}'))}" for b, v in line]
    drawn = legend(*keys) + frame.html(marks, f"regret against budget on {section.title}")
    return linked(drawn, [Plot(frame, points)], names, "Budgets")


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
