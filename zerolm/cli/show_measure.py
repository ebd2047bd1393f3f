"""The terminal's view of proxies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from zerolm.api.measure import ProxiesReport, ProxyColumns
from zerolm.cli.tables import show_table, show_text
from zerolm.comparison.results import ScoreRow, Section
from zerolm.report.facts import facts, tokens_of
from zerolm.report.rows import by_tau
from zerolm.report.tables import remark
from zerolm.statistics import agreement

HEADS = ("score", "tau-b", "95 %", "random ties", "rho", "95 %", "over body", "in budget", "seconds")


def show(results: ProxiesReport) -> None:
    """Print one network's values, the spread of several, or how they rank a benchmark."""
    print(results.title)
    print(tokens_of(results.measured.source))
    if results.section is not None:
        _show_section(results.section, results.measured)
    elif len(results.measured.candidates) == 1:
        _show_one(results.measured)
    else:
        _show_many(results)
    for name, reason in results.measured.left_out.items():
        show_text(f"left out: {name}: {reason}")
    if results.verdict is not None:
        _show_verdict(results.verdict)


def _show_section(section: Section, measured: ProxyColumns) -> None:
    """How every score ranks the benchmark, best first."""
    rows = by_tau(section)
    show_table((*HEADS, ""), [(*_cells(row, measured.seconds), remark(row)) for row in rows], remarks=True)
    for name, text in facts(section):
        show_text(f"{name}: {text}")


def _cells(row: ScoreRow, seconds: Mapping[str, float]) -> tuple[str, ...]:
    def span(low: float | None, high: float | None) -> str:
        return "-" if low is None or high is None else f"{low:.3f}..{high:.3f}"

    return (
        row.label,
        _number(row.tau),
        span(row.tau_low, row.tau_high),
        _number(row.tau_random_ties),
        _number(row.rho),
        span(row.rho_low, row.rho_high),
        "" if row.score == "body_params" else _number(row.gain, "+.3f"),
        _number(row.within_budget),
        f"{seconds[row.label]:.2f}" if row.label in seconds else "",
    )


def _number(value: float | None, form: str = ".3f") -> str:
    return "-" if value is None or math.isnan(value) else f"{value:{form}}"


def _show_one(measured: ProxyColumns) -> None:
    rows = [
        (name, f"{column[0]:.6g}", f"{measured.seconds[name]:.2f}")
        for name, column in measured.columns.items()
    ]
    show_table(("proxy", "value", "seconds"), rows)


def _show_many(results: ProxiesReport) -> None:
    """How the values spread, and how far a proxy only counts parameters."""
    assert results.params is not None
    rows = []
    for name, column in results.measured.columns.items():
        spread = (f"{value:.5g}" for value in np.quantile(column, (0.0, 0.5, 1.0)))
        rho = _number(agreement(column, results.params).rho)
        rows.append([name, *spread, rho, f"{results.measured.seconds[name]:.2f}"])
    show_table(("proxy", "lowest", "median", "highest", "rho with params", "seconds"), rows)


def _show_verdict(verdict: Any) -> None:
    show_text(
        f"LIBRA, by {verdict.calibration} labels: {', '.join(verdict.libra.names)}; on the other "
        f"{verdict.test} tau-b {_number(verdict.tau)}, rho {_number(verdict.rho)} "
        f"(body parameters {_number(verdict.params)})"
    )
