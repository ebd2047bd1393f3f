"""Sheets and sentences of a comparison: all scores on all benchmarks, everything about one, tables as CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from zerolm.comparison.results import (
    Comparison,
    ScoreRow,
    Section,
    by_tau,
    in_own_unit,
    key_of,
    name_of,
    standings,
)
from zerolm.show.sheet import PAGE, TERMINAL, Cell, Row, Sheet, pairs
from zerolm.show.text import show_interval, show_number, show_share
from zerolm.statistics.bootstrap import FEWEST
from zerolm.verbs.comparison_charts import alpha_curve, gains, regrets, scatters, stretch, unit

FILES: Final = ("rows.csv", "scores.csv")
CSV_HEAD: Final = ("benchmark", "view", "id", "result")
"""The first columns of ``scores.csv``."""
KINDS: Final = {"better": "better", "unclear": "unclear", "not better": "worse", None: ""}
REMARKS: Final = {"not better": "does not beat parameters", "unclear": "not shown to beat parameters"}
VIEW_NOTES: Final = {
    "published": "The networks as the published proxies scored them: hidden 256 and FFN 1024, whatever a "
    "configuration contains.",
    "declared": "The networks as a user reads their configurations.",
    "trained": "The networks as they were trained: every operation is plain attention, the first FFN matrix "
    "is 4 x hidden, and the configured FFN width enters only layers with several stacks.",
}
"""What the views of FlexiBERT are."""
MARKS_NOTE: Final = (
    "▴ beats counting parameters: the 95 % interval of the gain over body parameters lies above zero, and "
    "total parameters are beaten too. ▾ does not: one of the two has at least the same tau-b. Unmarked "
    "scores are higher, but not shown to be. Grey: baselines. Italic: the alpha was chosen by the labels."
)
UNSEEN: Final = (
    "Intervals are 95 % bootstraps over architectures; views of one benchmark share its results and are no "
    "independent evidence. Scores that saw the labels show what tuning could reach, not what a user gets."
)
HEADS: Final = (
    *("score", "tau-b [95 %]", "random ties", "rho [95 %]", "over body [95 %]", "in budget", "pairs"),
    *("top tenth", "regret 1/5"),
)
MEANINGS: Final = {
    "random ties": "mean of tau over all ways to break a score's ties",
    "over body": "tau-b beyond that of body parameters; its interval is of paired resamples",
    "in budget": "tau-b among architectures of similar numbers of body parameters (deciles)",
    "pairs": "share of pairs of about equal size that are ordered as their results are, ties counted half",
    "top tenth": "share of the best tenth that the highest-scored tenth finds",
    "regret 1/5": "what the best of the 1 or 5 highest-scored lacks to the best, in the unit of the metric, "
    "mean over nineteen budgets",
}
"""What the columns mean."""
NO_GAIN: Final = "No gain over body parameters is defined: they distinguish none of these architectures."
NO_ALPHA: Final = "No alpha distinguishes these architectures."
VERDICTS: Final = ("better", "unclear", "not better")


def against_sheet(comparison: Comparison) -> Sheet:
    """Return in how many views each score is better than counting parameters, and where it is worst."""

    def gain(pair: tuple[Section, ScoreRow]) -> float:
        return -math.inf if pair[1].gain is None else pair[1].gain

    lines: list[Row] = []
    for key, rows in standings(comparison).items():
        if any(row.baseline or row.saw_labels for _, row in rows):
            continue
        verdicts = [row.verdict for _, row in rows]
        section, worst = min(rows, key=gain)
        counts = [str(verdicts.count(verdict)) for verdict in VERDICTS]
        lines.append([name_of(key), *counts, show_number(worst.gain, "+.3f"), Cell(place(section), "shape")])
    head: Row = ["score", "better", "not shown", "not better", "least gain", Cell("on", "shape")]
    return Sheet("Views in which a score beats counting parameters", head, lines, kind="verdicts")


def overview(comparison: Comparison, on: Collection[str]) -> Sheet:
    """Return tau-b of each score (rows) on each benchmark and view, marked against counting parameters."""
    head: list[Cell | str] = ["tau-b"]
    for number, section in enumerate(comparison.sections, 1):
        name = section.truth.name.replace("_", " ")
        head.append(Cell(name, note=section.view or "", link=f"#s{number}"))
    scores = standings(comparison)
    rows: list[Row] = []
    for key in sorted(scores, key=lambda key: _rank(scores[key][0][1])):
        taus = {id(section): Cell(show_number(row.tau), kind(row)) for section, row in scores[key]}
        rows.append([name_of(key), *(taus.get(id(section), "") for section in comparison.sections)])
    best = [section.published.tau if section.published else None for section in comparison.sections]
    ceilings = [section.ceiling.tau if section.ceiling else None for section in comparison.sections]
    for name, values, form in (("best published", best, ".3f"), ("noise ceiling", ceilings, ".2f")):
        if any(value is not None for value in values):
            rows.append([Cell(name, "aside"), *(Cell(show_number(value, form), "aside") for value in values)])
    return Sheet("All scores on all benchmarks", head, rows, notes=[MARKS_NOTE], kind="overview", on=on)


def meanings() -> Sheet:
    return pairs("What the columns mean", MEANINGS.items(), on=(PAGE,))


def _rank(row: ScoreRow) -> int:
    """Return the place of a score: first those that saw no labels, then those that did, then baselines."""
    return 2 if row.baseline else int(row.saw_labels)


def section_sheet(
    section: Section, number: int, seconds: Mapping[str, float] | None = None, on: Collection[str] = ()
) -> Sheet:
    """Return everything about one benchmark in one view.

    ``seconds`` of proxies are a column more; ``on`` adds to where it is shown, page and terminal.
    """
    gained, curve = gains(section), alpha_curve(section)
    view = VIEW_NOTES.get(section.view or "") if section.truth.space == "flexibert" else None
    head, rows = agreement(section, seconds or {})
    return Sheet(
        section.title,
        head,
        rows,
        lead=f"{unit(section)}, {len(section.result)} architectures",
        charts=gained,
        notes=[
            *([] if gained else [NO_GAIN]),
            *([f"View {section.view}: {view}"] if view else []),
        ],
        kind="agreement",
        mark=f"s{number}",
        on=(PAGE, TERMINAL, *on),
        parts=[
            pairs("", facts(section)),
            Sheet("Result against score", charts=[scatters(section)], on=(PAGE,)),
            Sheet(
                "Alpha, and regret against budget",
                charts=[*curve, regrets(section)],
                layout="pair",
                notes=[] if curve else [NO_ALPHA],
                on=(PAGE,),
            ),
            pairs("Where it is from", origin(section), on=(PAGE,)),
        ],
    )


def agreement(section: Section, seconds: Mapping[str, float]) -> tuple[Row, list[Row]]:
    """Return the head and the rows of all numbers of one benchmark in one view, best score first."""
    rows: list[Row] = []
    for row in by_tau(section):
        mark = kind(row)
        spent = [show_number(seconds.get(row.label), ".2f")] if seconds else []
        rows.append(
            [
                Cell(row.label, mark),
                Cell(show_number(row.tau), note=show_interval(row.tau_low, row.tau_high, ".2f")),
                show_number(row.tau_random_ties),
                Cell(show_number(row.rho), note=show_interval(row.rho_low, row.rho_high, ".2f")),
                _gain(row, mark),
                show_number(row.within_budget),
                show_share(row.pairs_right),
                show_share(row.top_overlap),
                f"{row.regret_1:.3g}/{row.regret_5:.3g}",
                *spent,
                Cell(remark(row), f"shape {mark}"),
            ]
        )
    return [*HEADS, *(["seconds"] if seconds else []), Cell("remark", "shape")], rows


def _gain(row: ScoreRow, mark: str) -> Cell:
    if row.score == "body_params":
        return Cell("0", "base")
    interval = show_interval(row.gain_low, row.gain_high, "+.3f")
    return Cell(show_number(row.gain, "+.3f"), mark, interval)


def place(section: Section) -> str:
    return section.truth.name + (f" ({section.view})" if section.view else "")


def kind(row: ScoreRow) -> str:
    """Return how a row is marked."""
    if row.baseline:
        return "base"
    return "saw" if row.saw_labels and row.verdict == "better" else KINDS[row.verdict]


def remark(row: ScoreRow) -> str:
    """Return the reservations that belong to the numbers of a row."""
    notes = ["baseline"] if row.baseline else []
    notes += ["saw the labels"] if row.saw_labels else []
    notes += [REMARKS[row.verdict]] if row.verdict in REMARKS else []
    notes += ["not defined"] if row.tau is None else []
    return ", ".join(notes)


def facts(section: Section) -> Iterator[tuple[str, str]]:
    """Yield facts that belong to every agreement with a benchmark: chance, noise, what others reached."""
    one, five = section.random_regret
    yield "random choice", f"regret at 1 {one:.3g}, at 5 {five:.3g}"
    if len(section.result) < FEWEST:
        yield "intervals", f"none, with fewer than {FEWEST} architectures"
    count = max((row.pairs for row in section.rows), default=0)
    yield "pairs", f"{count} of about equal size, {section.alike}; a coin orders 50 % rightly"
    if section.plateau:
        reach = f"alpha {stretch(*section.plateau)}"
        yield "alpha plateau", f"{reach}: level with the best alpha by the paired 95 % interval"
    if section.ceiling:
        c = section.ceiling
        yield (
            "noise ceiling",
            f"a perfect predictor reaches about {c.tau:.2f} tau-b, {c.rho:.2f} rho; from {c.runs} runs of "
            f"{c.networks} repeated networks, deviation of a run {c.deviation:.3g}",
        )
    if section.published:
        p = section.published
        numbers = {"tau": p.tau, "rho": p.rho}
        texts = [f"{show_number(value)} {name}" for name, value in numbers.items() if value is not None]
        yield "best published", f"{', '.join(texts)}: {p.by}"


def origin(section: Section) -> Iterator[tuple[str, str]]:
    source = dict(section.truth.source)
    yield "task", section.truth.task or "not named"
    yield "space", section.truth.space
    yield "licence", _plain(source.pop("licence", "not named"))
    for name, value in source.items():
        if isinstance(value, dict):
            yield from ((f"{name} {part}", _plain(item)) for part, item in value.items())
        else:
            yield name, _plain(value)
    if not source:
        yield "source", "not named"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_plain(item)}" for name, item in value.items())
    return ", ".join(map(_plain, value)) if isinstance(value, list) else str(value)


def write_tables(comparison: Comparison, folder: Path) -> None:
    """Write ``FILES`` into a folder.

    ``rows.csv`` holds every row; ``scores.csv`` one line an architecture of a benchmark and view: its
    result in the unit of the metric, and the value of each score.
    """
    columns = [field.name for field in fields(ScoreRow)]
    _write_csv(folder / "rows.csv", columns, (row.to_json().values() for row in comparison.rows))
    names = list(dict.fromkeys(name_of(key_of(row)) for row in comparison.rows))
    _write_csv(folder / "scores.csv", [*CSV_HEAD, *names], _scored(comparison, names))


def _scored(comparison: Comparison, names: Sequence[str]) -> Iterator[list[Any]]:
    """Yield the lines of ``scores.csv``; a score that a benchmark lacks is empty."""
    for section in comparison.sections:
        labels = {name_of(key_of(row)): row.label for row in section.rows}
        columns = [
            section.scores[labels[name]].tolist() if name in labels else [None] * len(section.result)
            for name in names
        ]
        entries, results = section.truth.architectures, in_own_unit(section).tolist()
        for entry, result, *values in zip(entries, results, *columns, strict=True):
            yield [section.truth.name, section.view, entry.id, result, *values]


def _write_csv(path: Path, columns: Sequence[str], lines: Iterable[Iterable[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(lines)
