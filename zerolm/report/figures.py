"""The drawings of one benchmark: agreement with intervals, results against scores; legends."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from zerolm.comparison.results import ScoreRow, Section
from zerolm.report.page import BLUE, GREEN, GREY, INK, ORANGE
from zerolm.report.rows import by_tau, in_own_unit, label_free, row_of, short, unit
from zerolm.report.svg import Axis, axis, diamond, dot, drawing, frame, rule, text, x_ticks

PAGE, PITCH = 1060.0, 21.0
SHADE: Final = {False: INK, True: GREY}
GAIN: Final = "gain over body parameters, paired 95 % interval"


def key(mark: str, words: str) -> str:
    """One entry of a legend: a small drawing and what it stands for."""
    return f'<span class="key"><svg viewBox="0 0 24 12" class="swatch">{mark}</svg>{escape(words)}</span>'


def line_key(colour: str, words: str, dash: str = "", width: float = 2.0) -> str:
    return key(rule((1, 6), (23, 6), colour, width=width, dash=dash), words)


def _mark(row: ScoreRow, at: tuple[float, float], title: str) -> str:
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
    """tau-b of each score with its interval, and beside it what it gains over body parameters.

    The axes hold the scores and body parameters; a baseline beyond them is written at the edge.
    """
    rows = [row for row in by_tau(section) if row.tau is not None]
    if not rows:
        return '<p class="note">No score tells these architectures apart.</p>'
    near = [row for row in rows if not row.baseline or row.score == "body_params"] or rows
    lines: dict[str, tuple[float, str]] = {}
    if section.published and section.published.tau is not None:
        lines[f"best published {section.published.tau:.3f}"] = (section.published.tau, GREEN)
    if section.ceiling:
        lines[f"noise ceiling {section.ceiling.tau:.2f}"] = (section.ceiling.tau, INK)
    taus = axis([*_ends(near, "tau"), *(value for value, _ in lines.values())], 175, 640, wide=False)
    gains = axis([*_ends(near, "gain"), 0.0], 690, 1040, wide=False)
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


def _ends(rows: list[ScoreRow], name: str) -> Iterator[float]:
    """All numbers of the rows that an axis has to hold."""
    for row in rows:
        for part in ("", "_low", "_high"):
            value = getattr(row, name + part)
            if value is not None:
                yield value


def _whisker(
    row: ScoreRow, x: Axis, y: float, value: float | None, low: float | None, high: float | None
) -> str:
    if value is None:
        return ""
    if value < x.low:
        return text(x.start + 2, y + 4, f"◂ {value:.2f}", anchor="start", colour=GREY)
    if value > x.high:
        return text(x.stop - 2, y + 4, f"{value:.2f} ▸", anchor="end", colour=GREY)
    colour, span, bounds = ORANGE if row.saw_labels else GREY if row.baseline else BLUE, "", ""
    if low is not None and high is not None:
        ends = x(max(low, x.low)), x(min(high, x.high))
        span = rule((ends[0], y), (ends[1], y), colour, width=1.8)
        bounds = f" ({low:.3f} to {high:.3f})"
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
