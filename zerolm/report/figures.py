"""The drawings of one benchmark: agreement with intervals, scatter plots, the alpha curve, regret."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

import numpy as np

from zerolm.architecture import Floats
from zerolm.calibration.alpha import GRID
from zerolm.groundtruth.bench import Row, Section
from zerolm.report.page import BLUE, GREEN, GREY, INK, ORANGE
from zerolm.report.svg import (
    Axis,
    amount,
    area,
    axis,
    curve,
    diamond,
    dot,
    drawing,
    frame,
    rule,
    text,
    x_ticks,
)
from zerolm.statistics import regret_curve

PAGE, HALF, PITCH = 1060.0, 520.0, 21.0
STEP: Final = GRID[1] - GRID[0]


def row_of(section: Section, score: str, *, saw_labels: bool = False) -> Row | None:
    """The row of a score without alpha, or of the best alpha."""
    rows = (row for row in section.rows if row.score == score and row.saw_labels == saw_labels)
    return next((row for row in rows if saw_labels or row.alpha is None), None)


def label_free(section: Section) -> list[Row]:
    """The scores that a user can have without labels, best first; no baselines."""
    rows = (row for row in section.rows if not row.baseline and not row.saw_labels and row.tau is not None)
    return sorted(rows, key=_falling)


def by_tau(section: Section) -> list[Row]:
    """All rows, best first, those without a tau-b last."""
    return sorted(section.rows, key=_falling)


def _falling(row: Row) -> float:
    return 2.0 if row.tau is None else -row.tau


def in_own_unit(section: Section) -> Floats:
    """The results (n,) as the file gives them."""
    return section.result if section.truth.is_higher_better(section.metric) else -section.result


def unit(section: Section) -> str:
    """The metric and its direction."""
    better = "higher" if section.truth.is_higher_better(section.metric) else "lower"
    return f"{short(section.metric, 24)} ({better} is better)"


def short(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def key(mark: str, words: str) -> str:
    """One entry of a legend: a small drawing and what it stands for."""
    return f'<span class="key"><svg viewBox="0 0 24 12" class="swatch">{mark}</svg>{escape(words)}</span>'


def line_key(colour: str, words: str, dash: str = "", width: float = 2.0) -> str:
    return key(rule((1, 6), (23, 6), colour, width=width, dash=dash), words)


def _mark(row: Row, at: tuple[float, float], title: str) -> str:
    if row.saw_labels:
        return diamond(at, ORANGE, title)
    if row.baseline:
        return dot(at, GREY, title)
    return dot(at, BLUE, title, hollow=row.verdict != "better")


MARKS: Final = "".join(
    (
        key(dot((12, 6), BLUE), "beats counting parameters"),
        key(dot((12, 6), BLUE, hollow=True), "not, or not shown to"),
        key(dot((12, 6), GREY), "baseline"),
        key(diamond((12, 6), ORANGE), "saw the labels"),
    )
)


def forest(section: Section) -> str:
    """tau-b of each score with its interval, and beside it what it gains over body parameters."""
    rows = [row for row in by_tau(section) if row.tau is not None]
    if not rows:
        return '<p class="note">No score tells these architectures apart.</p>'
    lines: dict[str, tuple[float, str]] = {}
    if section.published and section.published.tau is not None:
        lines[f"best published {section.published.tau:.3f}"] = (section.published.tau, GREEN)
    if section.ceiling:
        lines[f"noise ceiling {section.ceiling.tau:.2f}"] = (section.ceiling.tau, INK)
    taus = axis([*_ends(rows, "tau"), *(value for value, _ in lines.values())], 175, 640)
    gains = axis([*_ends(rows, "gain"), 0.0], 690, 1040)
    top = 48.0 if lines else 6.0
    bottom = top + PITCH * len(rows)
    marks = [*x_ticks(taus, bottom, top), *x_ticks(gains, bottom, top)]
    marks.append(rule((gains(0.0), top), (gains(0.0), bottom), INK))
    for place, (words, (value, colour)) in enumerate(lines.items()):
        marks.append(rule((taus(value), 34), (taus(value), bottom), colour, width=1.5, dash="5 4"))
        anchor = "end" if taus(value) > 400 else "start"
        marks.append(text(taus(value), 13.0 + 15.0 * place, words, anchor=anchor, colour=colour))
    for place, row in enumerate(rows):
        y = top + PITCH * (place + 0.5)
        marks.append(text(165, y + 4, short(row.label, 24), anchor="end", colour=SHADE[row.baseline]))
        marks.append(_whisker(row, taus, y, row.tau, row.tau_low, row.tau_high))
        if row.score != "body_params":
            marks.append(_whisker(row, gains, y, row.gain, row.gain_low, row.gain_high))
    marks.append(text((taus.start + taus.stop) / 2, bottom + 36, "tau-b, 95 % interval", colour=INK))
    marks.append(text((gains.start + gains.stop) / 2, bottom + 36, GAIN, colour=INK))
    return drawing(PAGE, bottom + 44, marks, f"tau-b of every score on {section.title}")


SHADE: Final = {False: INK, True: GREY}
GAIN: Final = "gain over body parameters, paired 95 % interval"


def _ends(rows: list[Row], name: str) -> Iterator[float]:
    """All numbers of the rows that an axis has to hold."""
    for row in rows:
        for part in ("", "_low", "_high"):
            value = getattr(row, name + part)
            if value is not None:
                yield value


def _whisker(row: Row, x: Axis, y: float, value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return ""
    colour = ORANGE if row.saw_labels else GREY if row.baseline else BLUE
    span = "" if low is None or high is None else rule((x(low), y), (x(high), y), colour, width=1.8)
    bounds = "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
    return span + _mark(row, (x(value), y), f"{row.label}: {value:.4f}{bounds}")


def scatter(section: Section) -> str:
    """Result against score for ``geo``, body parameters and the best other label-free score."""
    best = next((row for row in label_free(section) if row.score != "geo"), None)
    rows = [row_of(section, "geo"), row_of(section, "body_params"), best]
    shown = [row for row in rows if row is not None]
    results, names = in_own_unit(section), [entry.id for entry in section.truth.architectures]
    y, marks = axis(results.tolist(), 290, 30), []
    for place, row in enumerate(shown):
        values = section.scores[row.label].tolist()
        x = axis(values, 62.0 + 342.0 * place, 362.0 + 342.0 * place)
        colour = GREY if row.baseline else BLUE
        marks.append(frame(x, y, short(row.label, 30), unit(section) if place == 0 else ""))
        title = f"{short(row.label, 24)}: tau-b " + ("-" if row.tau is None else f"{row.tau:.3f}")
        marks.append(text((x.start + x.stop) / 2, 18, title, colour=INK))
        points = zip(names, values, results.tolist(), strict=True)
        dots = (dot((x(v), y(r)), colour, f"{short(n, 60)}: {r:g}", radius=2.6) for n, v, r in points)
        marks.append(f'<g fill-opacity=".55">{"".join(dots)}</g>')
    return drawing(PAGE, 332, marks, f"result against score on {section.title}")


def alpha_curve(section: Section) -> str:
    """tau-b of ``zerolm`` against alpha, its plateau, the best alpha and the fixed ones."""
    points = [point for point in section.curve if point.tau is not None]
    fixed = [row for row in section.rows if isinstance(row.alpha, int | float) and row.tau is not None]
    if not points:
        return '<p class="note">No alpha tells these architectures apart.</p>'
    bounds = [v for p in points for v in (p.tau, p.low, p.high) if v is not None]
    x = axis([point.alpha for point in section.curve] + [float(row.alpha or 0) for row in fixed], 62, 510)
    y = axis([*bounds, *(row.tau for row in fixed if row.tau is not None)], 262, 14)
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
    """What the highest-scored lacks to the best within each budget of body parameters."""
    curves = list(regret_lines(section))
    x = axis(section.budgets.tolist(), 62, 510)
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
