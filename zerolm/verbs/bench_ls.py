"""``zerolm bench ls``: the benchmarks at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zerolm.progress import Progress, silent
from zerolm.settings.request import Request
from zerolm.show.sheet import Cell, Row, Sheet
from zerolm.verbs.report import Shown
from zerolm.verbs.shared import data

if TYPE_CHECKING:
    from zerolm.groundtruth.listing import Listed


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

        return BenchmarksReport(listing(self.data))


@dataclass(frozen=True, repr=False, eq=False)
class BenchmarksReport(Shown):
    """The benchmarks at hand."""

    benchmarks: Sequence[Listed]

    def to_json(self) -> list[dict[str, Any]]:
        return self.rows()

    def rows(self) -> list[dict[str, Any]]:
        return [benchmark.to_json() for benchmark in self.benchmarks]

    def lines(self) -> list[str]:
        names = ", ".join(benchmark.name for benchmark in self.benchmarks)
        return [f"{len(self.benchmarks)} benchmarks: {names or 'none'}"]

    def sheets(self) -> list[Sheet]:
        head: Row = [
            "benchmark",
            "space",
            "results",
            "licence",
            Cell("metrics; where from", "shape"),
        ]
        return [Sheet("Benchmarks", head, [_row(benchmark) for benchmark in self.benchmarks])]


def _row(benchmark: Listed) -> Row:
    """Return a benchmark as a row, or why it cannot be read."""
    from zerolm.groundtruth.cache import SHIPPED

    if benchmark.problem:
        return [benchmark.name, "-", "-", "-", benchmark.problem]
    is_shipped = Path(benchmark.path).parent == SHIPPED
    where = benchmark.source if is_shipped and benchmark.source else benchmark.path
    text = f"{', '.join(benchmark.metrics)}; {where}"
    return [
        benchmark.name,
        benchmark.space or "-",
        str(benchmark.count),
        benchmark.licence or "-",
        text,
    ]
