"""The tables of a comparison: all scores on all benchmarks, and all numbers of one."""

from __future__ import annotations

from typing import Final

from zerolm.comparison.results import Comparison, ScoreRow, Section
from zerolm.report.page import Cell, table
from zerolm.report.rows import by_tau, name_of, standings

KINDS: Final = {"better": "better", "unclear": "unclear", "not better": "worse", None: ""}
REMARKS: Final = {"not better": "does not beat parameters", "unclear": "not shown to beat parameters"}
HEADS: Final = (
    "score",
    "tau-b [95\u00a0%]",
    "random ties",
    "rho [95\u00a0%]",
    "gain over body [95\u00a0%]",
    "in budget",
    "pairs",
    "top tenth",
    "regret 1\u00a0/\u00a05",
    Cell("remark", "shape"),
)
HEADS_NOTE: Final = (
    "random ties: the mean of tau over all ways to break a score's ties. gain: tau-b beyond that of body "
    "parameters, with the interval of paired resamples. in budget: tau-b among architectures of about as "
    "many body parameters (deciles). pairs: the share of pairs of about equal size that are ordered as their "
    "results are, ties counted half. top tenth: the share of the best tenth that the highest-scored tenth "
    "finds. regret 1 / 5: what the best of the 1 or 5 highest-scored lacks to the best, in the unit of the "
    "metric, mean over nineteen budgets."
)


def kind(row: ScoreRow) -> str:
    """How a row is marked."""
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


def overview(comparison: Comparison) -> str:
    """tau-b of each score (rows) on each benchmark and view (columns), marked against the parameters."""
    head: list[Cell | str] = ["tau-b"]
    for place, section in enumerate(comparison.sections, 1):
        head.append(Cell(section.truth.name.replace("_", " "), note=section.view or "", link=f"#s{place}"))
    scores = standings(comparison)
    order = sorted(scores, key=lambda key: _rank(scores[key][0][1]))
    rows: list[list[Cell | str]] = []
    for key in order:
        by_section = {id(section): row for section, row in scores[key]}
        rows.append([name_of(key), *(_tau(by_section.get(id(section))) for section in comparison.sections)])
    if any(section.published for section in comparison.sections):
        published = [section.published.tau if section.published else None for section in comparison.sections]
        rows.append([Cell("best published", "aside"), *(Cell(show(tau, 3), "aside") for tau in published)])
    if any(section.ceiling for section in comparison.sections):
        ceilings = [section.ceiling.tau if section.ceiling else None for section in comparison.sections]
        rows.append([Cell("noise ceiling", "aside"), *(Cell(show(tau, 2), "aside") for tau in ceilings)])
    return table(head, rows, "overview")


def _rank(row: ScoreRow) -> int:
    """Scores first, then what saw the labels, then baselines."""
    return 2 if row.baseline else int(row.saw_labels)


def _tau(row: ScoreRow | None) -> Cell:
    return Cell("") if row is None else Cell(show(row.tau, 3), kind(row))


def agreement(section: Section) -> str:
    """Every number of one benchmark in one view, best first."""
    rows: list[list[Cell | str]] = []
    for row in by_tau(section):
        mark, reference = kind(row), row.score == "body_params"
        rows.append(
            [
                Cell(row.label, mark),
                Cell(show(row.tau, 4), note=_span(row.tau_low, row.tau_high)),
                show(row.tau_random_ties, 4),
                Cell(show(row.rho, 3), note=_span(row.rho_low, row.rho_high)),
                Cell("0", "base") if reference else Cell(show(row.gain, 3, "+"), mark, _gained(row)),
                show(row.within_budget, 3),
                share(row.pairs_right),
                share(row.top_overlap),
                f"{row.regret_1:.3g} / {row.regret_5:.3g}",
                Cell(remark(row), f"shape {mark}"),
            ]
        )
    return table(HEADS, rows, "agreement")


def show(value: float | None, digits: int, sign: str = "") -> str:
    return "–" if value is None else f"{value:{sign}.{digits}f}"  # noqa: RUF001


def share(value: float | None) -> str:
    """Return a share in per cent, a dash where there is none."""
    return "-" if value is None else f"{100 * value:.0f} %"


def _span(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.2f}..{high:.2f}"


def _gained(row: ScoreRow) -> str:
    low, high = row.gain_low, row.gain_high
    return "" if low is None or high is None else f"{low:+.3f}..{high:+.3f}"
