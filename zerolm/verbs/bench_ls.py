"""``zerolm bench ls``: the benchmarks at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from zerolm.progress import Progress, silent
from zerolm.settings.request import Request
from zerolm.show.sheet import Cell, Row, Sheet
from zerolm.verbs.report import Listing
from zerolm.verbs.shared import data


@dataclass(frozen=True, kw_only=True)
class BenchListSettings(Request):
    """Return the benchmarks at hand: in the folders of ZEROLM_DATA, in the cache, and in the package.

    With ``data`` those of these folders alone. Raises ``ValueError`` where one is no folder.
    """

    name: ClassVar[str] = "bench ls"
    examples = (
        ("zerolm bench ls", "those of ZEROLM_DATA, of the cache, and of zerolm"),
        ("zerolm bench ls --data mine", "one folder alone"),
    )
    notes = (
        "A benchmark is a JSON or CSV file of trained architectures with results. Ten come with zerolm; a "
        "file of the same name in a ZEROLM_DATA folder or in the cache's folder benchmarks takes "
        "precedence."
    )
    writes_no_result = True
    takes_progress = False
    data: str | None = data(group="Benchmarks")

    def run(self, progress: Progress = silent) -> BenchmarksReport:
        from zerolm.groundtruth.listing import listing

        return BenchmarksReport([asdict(benchmark) for benchmark in listing(self.data)])


@dataclass(frozen=True, repr=False, eq=False)
class BenchmarksReport(Listing):
    """The benchmarks at hand."""

    things: ClassVar[str] = "benchmarks"

    def sheets(self) -> list[Sheet]:
        head: Row = ["benchmark", "space", "results", "licence", Cell("metrics; where from", "shape")]
        return [Sheet("Benchmarks", head, [_row(benchmark) for benchmark in self.entries])]


def _row(benchmark: Mapping[str, Any]) -> Row:
    """Return a benchmark as a row, or why it cannot be read."""
    from zerolm.groundtruth.cache import SHIPPED

    if benchmark["problem"]:
        return [benchmark["name"], "-", "-", "-", benchmark["problem"]]
    is_shipped = Path(benchmark["path"]).parent == SHIPPED
    where = benchmark["source"] if is_shipped and benchmark["source"] else benchmark["path"]
    facts = [benchmark["space"] or "-", str(benchmark["count"]), benchmark["licence"] or "-"]
    return [benchmark["name"], *facts, f"{', '.join(benchmark['metrics'])}; {where}"]
