"""The page of proxies: one network's values, the spread of several, or how they rank a benchmark."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from zerolm.report.bars import BarRow, bars
from zerolm.report.chart import Axis, Frame, Plot, axis, linked
from zerolm.report.comparison import benchmark
from zerolm.report.comparison_charts import gains
from zerolm.report.facts import tokens_of
from zerolm.report.page import Heading, folded, note, page, pairs, section, table
from zerolm.report.rows import label_free, row_of
from zerolm.statistics import agreement

if TYPE_CHECKING:
    from zerolm.proxies.measure import Run

RHO: Final = "Spearman's rho with the number of parameters"
COUNTS: Final = 0.9
"""A rank correlation with parameters from which on a proxy does little but count them."""
DRAWN: Final = 6


def proxies_page(run: Run, configuration: Mapping[str, Any] | None = None) -> str:
    """Return the page as HTML; ``configuration`` is what ``run.yaml`` holds."""
    measured = run.measured
    heading = Heading("zerolm proxies", run.title, f"{tokens_of(measured.source)}.", *_said(run))
    if run.section is not None:
        body = [benchmark(run.section, 1)]
    elif run.params is None or len(measured.candidates) == 1:
        body = [section("Values", _values(run))]
    else:
        body = [
            section("How far each proxy counts parameters", _rhos(run)),
            section("Proxy against parameters", _scatters(run)),
            section("Spread", _spread(run)),
        ]
    if run.verdict is not None:
        body.append(section("LIBRA's choice", pairs(_libra(run))))
    if measured.left_out:
        body.append(section("Left out", pairs(measured.left_out.items(), "pairs wide")))
    settings = "\n".join(f"{name}: {value}" for name, value in run.to_json()["settings"].items())
    body.append(section("Settings", folded("Settings of the passes", settings)))
    return page(heading, body, configuration)


def proxies_fragment(run: Run) -> str:
    """Return a table and a chart, without style or script."""
    if run.section is not None:
        shown = gains(run.section, narrow=True)
    elif run.params is None or len(run.measured.candidates) == 1:
        shown = _values(run)
    else:
        shown = _spread(run) + _rhos(run, narrow=True)
    return f'<div style="max-width:720px"><p>{escape(run.title)}</p>{shown}</div>'


def _said(run: Run) -> tuple[str, str, str]:
    """Return what was found, against what, and how far to trust it."""
    measured = run.measured
    count = f"{len(measured.columns)} proxies of {len(measured.candidates)} network"
    limits = "A proxy sees one batch at random initialisation: another seed or text may say otherwise."
    if run.section is not None:
        free = [row for row in label_free(run.section) if row.label in measured.columns]
        base = row_of(run.section, "body_params")
        beaten = [row.label for row in free if row.verdict == "better"]
        best = f"{free[0].label} ranks best, tau-b {free[0].tau:.3f}." if free else "None of them is defined."
        tau = "is not defined" if base is None or base.tau is None else f"reaches {base.tau:.3f}"
        against = (
            f"Counting body parameters {tau}; {len(beaten)} of {len(free)} proxies are shown to be better"
        )
        names = f": {', '.join(beaten[:DRAWN])}" if beaten else ""
        return best, f"{against}{names}.", f"Which proxy is best shows only with the labels. {limits}"
    if run.params is None or len(measured.candidates) == 1:
        return f"{count}.", "One network alone has nothing to be ranked against.", limits
    rhos = {name: rho for name, rho in _correlations(run).items() if not math.isnan(rho)}
    counting = [name for name, rho in rhos.items() if abs(rho) >= COUNTS]
    against = (
        f"{len(counting)} of {len(rhos)} rank these networks nearly as counting parameters does "
        f"(rho of {COUNTS:g} or more)" + (f": {', '.join(counting[:DRAWN])}" if counting else "")
    )
    return f"{count}s.", f"{against}.", f"No network here was trained. {limits}"


def _correlations(run: Run) -> dict[str, float]:
    assert run.params is not None
    return {name: agreement(column, run.params).rho for name, column in run.measured.columns.items()}


def _rhos(run: Run, narrow: bool = False) -> str:
    rows = [
        BarRow(name, None if math.isnan(rho) else rho, "-" if math.isnan(rho) else f"{rho:.3f}",
            "orange" if abs(rho) >= COUNTS else "blue")
        for name, rho in sorted(_correlations(run).items(), key=lambda pair: -abs(np.nan_to_num(pair[1])))
    ]  # fmt: skip
    return bars(rows, Axis(-1.0, 1.0, RHO), RHO, [(0.0, "ink")], narrow=narrow)


def _scatters(run: Run) -> str:
    assert run.params is not None
    params = run.params.tolist()
    names = [candidate.name for candidate in run.measured.candidates]
    x, drawn, plots = axis(params, "parameters"), [], []
    for name, column in list(run.measured.columns.items())[:DRAWN]:
        values = column.tolist()
        frame, points = Frame(x, axis(values, name), 220), list(zip(params, values, strict=True))
        drawn.append(
            f"<figure>{frame.html([frame.dots(points, 'blue')], f'{name} against parameters')}</figure>"
        )
        plots.append(Plot(frame, points, [(name, [f"{value:.5g}" for value in values])]))
    shared = [("parameters", [f"{value:,.0f}" for value in params])]
    more = len(run.measured.columns) - len(plots)
    return linked(f'<div class="triple">{"".join(drawn)}</div>', plots, names, "Networks", shared) + note(
        f"The first {DRAWN}; {more} more are in the table." if more > 0 else ""
    )


def _values(run: Run) -> str:
    measured = run.measured
    rows = (
        [name, f"{column[0]:.6g}", f"{measured.seconds[name]:.2f}"]
        for name, column in measured.columns.items()
    )
    return table(["proxy", "value", "seconds"], rows, "values")


def _spread(run: Run) -> str:
    rhos, rows = _correlations(run), []
    for name, column in run.measured.columns.items():
        spread = (f"{value:.5g}" for value in np.quantile(column, (0.0, 0.5, 1.0)))
        rho = "-" if math.isnan(rhos[name]) else f"{rhos[name]:.3f}"
        rows.append([name, *spread, rho, f"{run.measured.seconds[name]:.2f}"])
    return table(["proxy", "lowest", "median", "highest", "rho with params", "seconds"], rows, "spread")


def _libra(run: Run) -> list[tuple[str, str]]:
    verdict = run.verdict
    assert verdict is not None

    def shown(value: float) -> str:
        return "-" if math.isnan(value) else f"{value:.3f}"

    return [
        ("chosen", ", ".join(verdict.libra.names)),
        ("labels that chose", str(verdict.calibration)),
        (f"tau-b on {verdict.test} others", shown(verdict.tau)),
        ("body parameters there", shown(verdict.params)),
    ]
