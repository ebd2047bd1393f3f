"""Sheets of a comparison: all scores on all benchmarks, and everything about one of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from zerolm.comparison.results import Comparison, ScoreRow, Section
from zerolm.comparison.standings import by_tau, name_of, standings
from zerolm.show.sheet import PAGE, TERMINAL, Cell, Row, Sheet, pairs
from zerolm.show.text import show_interval, show_number, show_share
from zerolm.verbs.comparison_charts import alpha_curve, gains, regrets, scatters
from zerolm.verbs.comparison_words import (
    HEADS_NOTE,
    MARKS_NOTE,
    VIEW_NOTES,
    facts,
    kind,
    origin,
    remark,
    unit,
)

HEADS: Final = (
    *("score", "tau-b [95 %]", "random ties", "rho [95 %]", "over body [95 %]", "in budget", "pairs"),
    *("top tenth", "regret 1/5"),
)
NO_GAIN: Final = "No gain over body parameters is defined: they distinguish none of these architectures."
NO_ALPHA: Final = "No alpha distinguishes these architectures."


def overview(comparison: Comparison, sentences: Iterable[str], on: Collection[str]) -> Sheet:
    """Return tau-b of each score (rows) on each benchmark and view, marked against counting parameters."""
    head: list[Cell | str] = ["tau-b"]
    for number, section in enumerate(comparison.sections, 1):
        name = section.truth.name.replace("_", " ")
        head.append(Cell(name, note=section.view or "", link=f"#s{number}"))
    scores = standings(comparison)
    rows: list[Row] = []
    for key in sorted(scores, key=lambda key: _rank(scores[key][0][1])):
        by_section = {id(section): row for section, row in scores[key]}
        rows.append([name_of(key), *(_tau(by_section.get(id(section))) for section in comparison.sections)])
    published = [section.published.tau if section.published else None for section in comparison.sections]
    ceilings = [section.ceiling.tau if section.ceiling else None for section in comparison.sections]
    for name, taus, form in (("best published", published, ".3f"), ("noise ceiling", ceilings, ".2f")):
        if any(tau is not None for tau in taus):
            rows.append([Cell(name, "aside"), *(Cell(show_number(tau, form), "aside") for tau in taus)])
    title = "All scores on all benchmarks"
    return Sheet(title, head, rows, list(sentences), [MARKS_NOTE], kind="overview", on=on)


def _rank(row: ScoreRow) -> int:
    """Return the place of a score: first those that saw no labels, then those that did, then baselines."""
    return 2 if row.baseline else int(row.saw_labels)


def _tau(row: ScoreRow | None) -> Cell:
    return Cell("") if row is None else Cell(show_number(row.tau), kind(row))


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
            HEADS_NOTE,
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
