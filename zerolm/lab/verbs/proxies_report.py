"""The results of ``zerolm lab proxies`` and ``lab bench``: values, how far they count parameters, ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as fields_of
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import numpy as np

from zerolm.comparison.document import from_document
from zerolm.comparison.results import Comparison, label_free, row_of
from zerolm.io.plain import as_plain, checked
from zerolm.lab.zero_cost.result import LibraChoice, ProxyPasses, ProxyTable, RankedProxies, tokens_of
from zerolm.settings.messages import plural
from zerolm.show.charts import Axis, Bar, Bars, Dots, Linked, Plot, axis
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Heading, Row, Sheet, pairs
from zerolm.show.text import sentence, show_number
from zerolm.statistics import agreement, defined
from zerolm.verbs.bench_report import BenchReport
from zerolm.verbs.comparison_sheets import FILES, meanings, section_sheet, write_tables
from zerolm.verbs.report import Report

RHO: Final = "Spearman's rho with the number of parameters"
COUNTS: Final = 0.9
"""A rank correlation with parameters from which on a proxy does little but count them."""
DRAWN: Final = 6
"""Proxies that are drawn."""
LIMITS: Final = "A proxy sees one batch at random initialisation: another seed or text may say otherwise."
OF_BENCHMARKS: Final = ("metric", "section", "rows", "libra", "benchmarks")
"""Fields of the JSON where the networks are those of a benchmark."""


@dataclass(frozen=True, repr=False, eq=False)
class ProxiesReport(RankedProxies, Report):
    """Proxies of networks, how they rank a benchmark, and how they are shown; nothing of it needs torch."""

    command: ClassVar[str] = "lab proxies"

    @property
    def title(self) -> str:
        """Return the number of networks and proxies, in one line."""
        return self.table.title

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = as_plain(self.table)
        if self.section is not None:
            comparison = Comparison([self.section]).to_json()
            parts = (self.section.metric, comparison["sections"][0], comparison["rows"])
            values = (*parts, as_plain(self.libra), comparison["benchmarks"])
            document |= dict(zip(OF_BENCHMARKS, values, strict=True))
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        fields = {name: value for name, value in document.items() if name not in OF_BENCHMARKS}
        table = checked(ProxyTable, fields)
        if not {item.name for item in fields_of(ProxyPasses)} <= set(fields["settings"]):
            raise ValueError("settings: they are not those of the passes")
        table.check()
        if "section" not in document:
            return cls(table)
        comparison = from_document({**document, "sections": [document["section"]]})
        (section,), libra = comparison.sections, document["libra"]
        if len(section.result) != len(table.networks):
            raise ValueError("the benchmark is of other networks")
        return cls(table, section, None if libra is None else checked(LibraChoice, libra))

    @property
    def _is_alone(self) -> bool:
        """Return whether there is nothing that the values can be compared with."""
        return self.table.params is None or len(self.table.networks) == 1

    @property
    def _tokens(self) -> str:
        return sentence(tokens_of(self.table.text))

    @cached_property
    def _rhos(self) -> dict[str, float]:
        """Return the rank correlation of each proxy with the number of parameters."""
        params = np.array(self.table.params, np.float64)
        columns = self.table.proxies.items()
        return {name: agreement(np.array(column, np.float64), params).rho for name, column in columns}

    def lines(self) -> list[str]:
        finding, baseline, _ = self._findings()
        return [self.title, self._tokens, f"{finding} {baseline}"]

    def heading(self) -> Heading:
        return Heading(self.title, self._tokens, *self._findings())

    def _findings(self) -> tuple[str, str, str]:
        """Return the finding, its baseline, and its limits."""
        if self.section is not None:
            free = [row for row in label_free(self.section) if row.label in self.table.proxies]
            base = row_of(self.section, "body_params")
            best = f"{free[0].label} ranks best, tau-b {show_number(free[0].tau)}." if free else ""
            better = sum(row.verdict == "better" for row in free)
            return (
                best or "None of them is defined.",
                f"Counting body parameters: tau-b {show_number(base.tau if base else None)}; {better} of "
                f"{len(free)} proxies are shown to be better.",
                f"Which proxy is best shows only with the labels. {LIMITS}",
            )
        count = len(self.table.proxies)
        proxies = "1 proxy" if count == 1 else f"{count} proxies"
        counts = f"{proxies} of {plural(len(self.table.networks), 'network')}."
        if self._is_alone:
            return counts, "One network alone ranks against nothing.", LIMITS
        counting = sum(abs(rho) >= COUNTS for rho in self._rhos.values())
        return (
            counts,
            f"{counting} of {len(self._rhos)} rank these networks nearly as counting parameters does "
            f"(rho of {COUNTS:g} or more).",
            f"No network here was trained. {LIMITS}",
        )

    def sheets(self) -> list[Sheet]:
        table = self.table
        settings = [
            (name, str(value)) for name, value in as_plain(table.settings).items() if value is not None
        ]
        sheets = self._values()
        if self.libra:
            libra = self.libra
            rows = [
                ("chosen", ", ".join(libra.chosen)),
                ("labels that chose", str(libra.calibration)),
                (f"on {libra.test} others", f"tau-b {show_number(libra.tau)}, rho {show_number(libra.rho)}"),
                ("body parameters there", f"tau-b {show_number(libra.tau_body_params)}"),
            ]
            sheets.append(pairs("LIBRA's choice", rows))
        if table.left_out:
            sheets.append(pairs("Left out", table.left_out.items()))
        return [*sheets, pairs("Settings of the passes", settings, on=(PAGE,))]

    def _values(self) -> list[Sheet]:
        """Return how the proxies rank a benchmark, else how they count parameters, else their values."""
        seconds, columns, where = self.table.seconds, self.table.proxies, (PAGE, TERMINAL, NOTEBOOK)
        if self.section is not None:
            return [section_sheet(self.section, 1, seconds, on=(NOTEBOOK,)), meanings()]
        rows: list[Row] = []
        if self._is_alone:
            for name, column in columns.items():
                rows.append([name, f"{column[0]:.6g}", f"{seconds[name]:.2f}"])
            return [Sheet("Values", ["proxy", "value", "seconds"], rows, kind="values", on=where)]
        for name, column in columns.items():
            spread = (f"{value:.5g}" for value in np.quantile(column, (0.0, 0.5, 1.0)))
            rows.append([name, *spread, show_number(self._rhos[name]), f"{seconds[name]:.2f}"])
        ranks = sorted(self._rhos.items(), key=lambda pair: -abs(np.nan_to_num(pair[1])))
        bars = [
            Bar(name, defined(rho), show_number(rho), "orange" if abs(rho) >= COUNTS else "blue")
            for name, rho in ranks
        ]
        counting = Bars(RHO, Axis(-1.0, 1.0, RHO), bars, [(0.0, "ink")])
        more = f"The first {DRAWN}; {len(columns) - DRAWN} more are in the table."
        notes = [more if len(columns) > DRAWN else ""]
        head = ["proxy", "lowest", "median", "highest", "rho with params", "seconds"]
        return [
            Sheet("How far each proxy counts parameters", charts=[counting], on=(PAGE, NOTEBOOK)),
            Sheet("Proxy against parameters", charts=[self._scatters()], notes=notes, on=(PAGE,)),
            Sheet("Spread", head, rows, kind="spread", on=where),
        ]

    def _scatters(self) -> Linked:
        params, plots = self.table.params or [], []
        x = axis(params, "parameters")
        for name, values in list(self.table.proxies.items())[:DRAWN]:
            points = list(zip(params, values, strict=True))
            columns = [(name, [f"{value:.5g}" for value in values])]
            label, marks = f"{name} against parameters", [Dots(points, "blue")]
            plots.append(Plot(label, x, axis(values, name), marks, (), 220, "", points, columns))
        shared = [("parameters", [f"{value:,.0f}" for value in params])]
        return Linked(plots, self.table.networks, "Networks", shared)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each network: its parameters, its trained result if any, and its proxies."""
        columns: dict[str, Sequence[Any]] = {"network": self.table.networks}
        if self.table.params is not None:
            columns["params"] = self.table.params
        if self.section is not None:
            columns["result"] = self.section.result.tolist()
        columns |= {name: column for name, column in self.table.proxies.items() if name not in columns}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    @property
    def written(self) -> list[str]:
        return [*super().written, *(FILES if self.section else ())]

    def write_more(self, folder: Path) -> None:
        """Write the tables of a benchmark as CSV."""
        if self.section is not None:
            write_tables(Comparison([self.section]), folder)


@dataclass(frozen=True, repr=False, eq=False)
class ProxyBenchReport(BenchReport):
    """How well proxies and scores rank trained architectures, on each benchmark in each view."""

    command: ClassVar[str] = "lab bench"
