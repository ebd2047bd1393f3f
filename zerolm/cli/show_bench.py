"""The terminal's view of a comparison of scores with benchmarks."""

from __future__ import annotations

from zerolm.api.bench import BenchReport
from zerolm.cli.tables import show_table, show_text
from zerolm.comparison.results import Section
from zerolm.report.facts import facts
from zerolm.report.rows import by_tau
from zerolm.report.tables import remark, share

HEADS = (
    "score",
    "tau-b",
    "95 %",
    "random ties",
    "rho",
    "over body",
    "95 %",
    "in budget",
    "pairs",
    "regret 1/5",
    "",
)


def show(result: BenchReport) -> None:
    """Print a table for each benchmark and view, and a word on the proxies."""
    for section in result.sections:
        show_section(section)
    if result.comparison.note:
        print(result.comparison.note)


def show_section(section: Section) -> None:
    """Print one table: what each score reaches, best first, and whether it beats counting parameters."""
    truth = section.truth
    better = "higher is better" if truth.is_higher_better(section.metric) else "lower is better"
    print(f"\n{section.title}: {section.metric} ({better}), {len(section.result)} architectures")
    rows, lines = by_tau(section), []
    for row in rows:
        cells = (
            row.label,
            _show(row.tau),
            _span(row.tau_low, row.tau_high),
            _show(row.tau_random_ties),
            _show(row.rho),
            "" if row.score == "body_params" else _signed(row.gain),
            "" if row.score == "body_params" else _span(row.gain_low, row.gain_high, sign=True),
            _show(row.within_budget),
            share(row.pairs_right),
            f"{row.regret_1:.3g}/{row.regret_5:.3g}",
            remark(row),
        )
        lines.append(cells)
    show_table(HEADS, lines, remarks=True)
    for name, text in facts(section):
        show_text(f"{name}: {text}")


def _show(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.4f}"


def _span(low: float | None, high: float | None, sign: bool = False) -> str:
    if low is None or high is None:
        return "-"
    return f"{low:+.3f}..{high:+.3f}" if sign else f"{low:.3f}..{high:.3f}"
