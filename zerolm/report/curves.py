"""The curves of a benchmark: agreement against alpha, regret against budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from zerolm.calibration.alpha import GRID
from zerolm.comparison.results import Section
from zerolm.report.figures import key, line_key
from zerolm.report.page import BLUE, GREEN, GREY, ORANGE
from zerolm.report.rows import row_of, short
from zerolm.report.svg import Axis, amount, area, axis, curve, diamond, dot, drawing, frame, rule
from zerolm.statistics import regret_curve

HALF: Final = 520.0
STEP: Final = GRID[1] - GRID[0]


def alpha_curve(section: Section) -> str:
    """tau-b of ``zerolm`` against alpha, its plateau, the best alpha and the fixed ones."""
    points = [point for point in section.curve if point.tau is not None]
    fixed = [row for row in section.rows if isinstance(row.alpha, int | float) and row.tau is not None]
    if not points:
        return '<p class="note">No alpha tells these architectures apart.</p>'
    bounds = [v for p in points for v in (p.tau, p.low, p.high) if v is not None]
    x = axis([point.alpha for point in section.curve] + [float(row.alpha or 0) for row in fixed], 62, 502)
    y = axis([*bounds, *(row.tau for row in fixed if row.tau is not None)], 262, 14, wide=False)
    marks = [frame(x, y, "alpha of zerolm (0: FFN alone, 1: attention alone)", "tau-b")]
    if section.plateau:
        low, high = x(section.plateau[0] - STEP / 2), x(section.plateau[1] + STEP / 2)
        marks.append(area([(low, y.start), (high, y.start), (high, y.stop), (low, y.stop)], ORANGE))
    lower = [(x(p.alpha), y(p.low)) for p in points if p.low is not None]
    upper = [(x(p.alpha), y(p.high)) for p in points if p.high is not None]
    if lower:
        marks.append(area([*lower, *reversed(upper)], BLUE))
    for name, colour, dash in (("body_params", GREY, ""), ("geo", GREEN, "6 4")):
        other = row_of(section, name)
        if other is not None and other.tau is not None:
            marks.append(rule((x.start, y(other.tau)), (x.stop, y(other.tau)), colour, width=1.6, dash=dash))
    marks.append(curve([(x(p.alpha), y(p.tau)) for p in points if p.tau is not None], BLUE))
    for row in fixed:
        at = (x(float(row.alpha or 0)), y(row.tau or 0.0))
        marks.append(dot(at, BLUE, f"{row.label}: {row.tau:.4f}", hollow=True))
    best = row_of(section, "zerolm", saw_labels=True)
    if best is not None and best.tau is not None and best.best_alpha is not None:
        marks.append(diamond((x(best.best_alpha), y(best.tau)), ORANGE, f"{best.label}: {best.tau:.4f}"))
    return drawing(HALF, 304, marks, f"tau-b of zerolm against alpha on {section.title}")


def alpha_keys(section: Section) -> str:
    best = row_of(section, "zerolm", saw_labels=True)
    fixed = ", ".join(f"{row.alpha:g}" for row in section.rows if isinstance(row.alpha, int | float))
    keys = [line_key(BLUE, "zerolm, 95 %"), line_key(GREEN, "geo", "6 4"), line_key(GREY, "body_params")]
    if best is not None and best.best_alpha is not None:
        keys.append(key(diamond((12, 6), ORANGE), f"best alpha {best.best_alpha:g} (saw the labels)"))
    if section.plateau:
        low, high = section.plateau
        keys.append(
            key(area([(1, 1), (23, 1), (23, 11), (1, 11)], ORANGE, 0.25), f"level: {_stretch(low, high)}")
        )
    if fixed:
        keys.append(key(dot((12, 6), BLUE, hollow=True), f"fixed: {fixed}"))
    return "".join(keys)


def _stretch(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def regret_figure(section: Section) -> str:
    """Draw what the highest-scored lacks to the best within each budget of body parameters."""
    curves = list(regret_lines(section))
    x = axis(section.budgets.tolist(), 62, 502)
    y = axis([0.0, *(value for _, _, _, values in curves for value in values)], 262, 14)
    y = Axis(0.0, y.high, y.start, y.stop)
    marks = [frame(x, y, "budget of body parameters", f"regret at 1, {short(section.metric, 20)}")]
    for name, colour, dash, values in curves:
        points = [(x(b), y(v)) for b, v in zip(section.budgets.tolist(), values, strict=True)]
        marks.append(curve(points, colour, dash=dash))
        marks += [
            dot(at, colour, f"{name}: {v:.3g} within {amount(float(f'{b:.3g}'))}", radius=2.4)
            for at, b, v in zip(points, section.budgets.tolist(), values, strict=True)
        ]
    return drawing(HALF, 304, marks, f"regret against budget on {section.title}")


def regret_lines(section: Section) -> Iterator[tuple[str, str, str, list[float]]]:
    """Name, colour, dashes and the regret (19,) of each curve."""
    cost = section.scores["body_params"]
    yield "random choice", GREY, "2 4", regret_curve(np.zeros(len(cost)), section.result, cost, 1).tolist()
    best = row_of(section, "zerolm", saw_labels=True)
    if best is not None:
        yield best.label, ORANGE, "", section.regrets[best.label].tolist()
    yield "body_params", GREY, "", section.regrets["body_params"].tolist()
    if "geo" in section.regrets:
        yield "geo", BLUE, "", section.regrets["geo"].tolist()


def regret_keys(section: Section) -> str:
    return "".join(line_key(colour, name, dash) for name, colour, dash, _ in regret_lines(section))
