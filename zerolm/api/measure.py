"""``zerolm.measure`` and ``zerolm.list_proxies``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np

from zerolm.api.comparison_files import FILES, read_tables, write_tables
from zerolm.api.configuration import absolute
from zerolm.api.documented import documented
from zerolm.api.extras import needing_torch
from zerolm.api.report import Report, Shown
from zerolm.architecture import Floats
from zerolm.commands.proxies import PROXIES
from zerolm.comparison.results import Comparison, Section
from zerolm.groundtruth.reader import is_file_name, same_folders
from zerolm.progress import Progress, silent
from zerolm.report.proxies import proxies_fragment, proxies_page
from zerolm.spaces import space_names

if TYPE_CHECKING:
    from zerolm.proxies.request import Request

Text = str | PathLike[str]
PASSES: Final = ("mode", "upstream", "batch", "length", "seed", "device")
NETWORKS: Final = ("count", "max_params", "limit", "view", "metric", "data")
SHOWN: Final = 10
"""Proxies that ``repr`` shows."""


@dataclass(frozen=True)
class ProxyColumns:
    """The scores of networks: ``columns`` (n,) by proxy, higher expected to be better; ``seconds`` each."""

    source: str
    candidates: tuple[SimpleNamespace, ...]
    columns: dict[str, Floats]
    seconds: dict[str, float]
    left_out: dict[str, str]


@dataclass(frozen=True, repr=False, eq=False)
class ProxiesReport(Report):
    """Proxies of networks; ``section`` says how they rank a benchmark, where the networks are of one.

    Nothing of it needs torch.
    """

    document: Mapping[str, Any]
    section: Section | None = None
    configuration: Mapping[str, Any] = field(default_factory=dict)
    command: ClassVar[str] = PROXIES.name

    @property
    def title(self) -> str:
        """Return what was computed, in one line."""
        return str(self.document["title"])

    @property
    def measured(self) -> ProxyColumns:
        """Return the networks and the columns of their scores."""
        document = self.document
        return ProxyColumns(
            document["text"],
            tuple(SimpleNamespace(name=name) for name in document["networks"]),
            {name: np.array(column, np.float64) for name, column in document["proxies"].items()},
            document["seconds"],
            document["left_out"],
        )

    @property
    def params(self) -> Floats | None:
        """Return the parameters of the networks (n,); None for a model, which is not counted."""
        given = self.document["params"]
        return None if given is None else np.array(given, np.float64)

    @property
    def verdict(self) -> SimpleNamespace | None:
        """Return LIBRA's choice and how it does on the other labels; None without enough of them."""
        told = self.document.get("libra")
        if told is None:
            return None
        tau, rho, params = (_number(told[name]) for name in ("tau", "rho", "tau_body_params"))
        chosen = SimpleNamespace(names=told["chosen"])
        counts = {name: told[name] for name in ("calibration", "test")}
        return SimpleNamespace(libra=chosen, **counts, tau=tau, rho=rho, params=params)

    def to_json(self) -> dict[str, Any]:
        return dict(self.document)

    def lines(self) -> list[str]:
        lines = [self.title]
        if self.section is not None:
            taus = {row.label: row.tau for row in self.section.rows}
            known = {name: taus.get(name) for name in (*self.document["proxies"], "body_params")}
            rows = sorted(known.items(), key=lambda row: -math.inf if row[1] is None else -row[1])
            lines += [f"{name}: tau-b {tau:.3f}" for name, tau in rows[:SHOWN] if tau is not None]
        else:
            columns = self.measured.columns.items()
            lines += [f"{name}: {_span(column)}" for name, column in list(columns)[:SHOWN]]
        more = len(self.document["proxies"]) - SHOWN
        return [*lines, *([f"and {more} more"] if more > 0 else []), *self._left_out()]

    def _left_out(self) -> list[str]:
        return [f"left out: {', '.join(self.document['left_out'])}"] if self.document["left_out"] else []

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each network: its parameters, its trained result if any, and its proxies."""
        columns: dict[str, Sequence[Any]] = {"network": self.document["networks"]}
        if self.document["params"] is not None:
            columns["params"] = self.document["params"]
        if self.section is not None:
            columns["result"] = self.section.result.tolist()
        columns |= {name: column for name, column in self.document["proxies"].items() if name not in columns}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def page(self) -> str:
        run: Any = self
        return proxies_page(run, self.run_yaml)

    def fragment(self) -> str:
        run: Any = self
        return proxies_fragment(run)

    @property
    def written(self) -> list[str]:
        return [*super().written, *(FILES if self.section else ())]

    def write_more(self, folder: Path) -> None:
        """Write the tables of a benchmark as CSV, and the benchmark."""
        if self.section is not None:
            write_tables(Comparison([self.section]), folder)

    @classmethod
    def from_folder(cls, folder: Path, document: dict[str, Any], configuration: dict[str, Any]) -> Self:
        section = None
        if "rows" in document:
            told = {"rows": document["rows"], "sections": [document["section"]]}
            (section,) = read_tables(told, folder).sections
        report = cls(document, section, configuration)
        report.lines()
        report.page()  # what it does not find is not there
        return report


@documented(PROXIES)
def measure(
    target: Text,
    *,
    proxies: str | Sequence[str] | None = None,
    mode: str = "sane",
    upstream: str | None = None,
    count: int | None = None,
    max_params: int | str | None = None,
    limit: int | None = None,
    view: str | None = None,
    metric: str | None = None,
    data: Text | None = None,
    text: Text = "random",
    batch: int = 64,
    length: int = 128,
    micro_batches: int = 8,
    seed: int = 0,
    device: str = "cpu",
    jobs: int = 1,
    backend: str = "loky",
    store: Text | None = None,
    progress: Progress = silent,
) -> ProxiesReport:
    """Return training-free proxies of networks that run, all from a handful of shared passes.

    ``target`` is a space, whose networks are drawn, a benchmark by name or file, or a folder with a model.
    What is computed is stored at once: a second run reuses it. Raises ``ValueError``, in one line, for what
    makes no sense, and ``ModuleNotFoundError`` where torch is not installed.
    """
    own = PROXIES.values({name: value for name, value in locals().items() if name != "progress"})
    with needing_torch():
        from zerolm.proxies.measure import measure as compute
    run = compute(own["target"], _request(own), progress=progress)
    document = json.loads(json.dumps(run.to_json()))  # as it is when it is read again
    return ProxiesReport(document, run.section, _configuration(own))


def _request(own: Mapping[str, Any]) -> Request:
    from zerolm.proxies.request import Request, Selection

    return Request(
        names=own["proxies"],
        text=own["text"],
        settings={name: own[name] for name in PASSES} | {"parts": own["micro_batches"]},
        networks=Selection(**{name: own[name] for name in NETWORKS}),
        jobs=own["jobs"],
        backend=own["backend"],
        store=None if own["store"] is None else Path(own["store"]),
    )


def _configuration(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that mean the same wherever they are read."""
    target = own["target"]
    ran = dict(own) | {"store": None if own["store"] is None else str(Path(own["store"]).absolute())}
    if own["text"] != "random":
        ran |= {"text": absolute(own["text"])}
    if target not in space_names():
        if Path(target).is_dir() or is_file_name(target):
            ran |= {"target": absolute(target), "data": own["data"] and same_folders(own["data"])}
        else:
            ran |= {"data": same_folders(own["data"])}
    return {name: value for name, value in ran.items() if value is not None}


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _span(column: Floats) -> str:
    low, high = column.min(), column.max()
    return f"{low:.5g}" if len(column) == 1 else f"{low:.5g} to {high:.5g}"


@dataclass(frozen=True, repr=False)
class ProxyListing(Shown):
    """The proxies: the name of each, what it needs, whether higher is better (``sign``), its source."""

    proxies: list[dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        return {"proxies": self.proxies}

    def rows(self) -> list[dict[str, Any]]:
        return [row | {"needs": ", ".join(row["needs"])} for row in self.proxies]

    def lines(self) -> list[str]:
        cells = [("proxy", "needs", "better")]
        for row in self.proxies:
            better = "higher" if row["sign"] > 0 else "lower"
            cells.append((row["name"], ", ".join(row["needs"]) or "-", better))
        sources = ["source", *(row["source"] for row in self.proxies)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = []
        for (name, needs, better), source in zip(cells, sources, strict=True):
            lines.append(f"{name:<{widths[0]}}  {needs:>{widths[1]}}  {better:>{widths[2]}}  {source}")
        return lines


def list_proxies() -> ProxyListing:
    """Return the proxies, those of plug-ins too: what they need, and where they come from."""
    with needing_torch():
        from zerolm.proxies import find_proxy, proxy_names
    every = [find_proxy(name) for name in proxy_names()]
    rows = [{"name": p.name, "needs": list(p.needs), "sign": p.sign, "source": p.source} for p in every]
    return ProxyListing(rows)
