"""``zerolm.list_benchmarks``."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from zerolm.api.documented import documented
from zerolm.api.report import Shown
from zerolm.commands.listings import BENCH_LS
from zerolm.groundtruth.cache import SHIPPED
from zerolm.groundtruth.listing import Listed, listing


@dataclass(frozen=True, repr=False)
class BenchmarksReport(Shown):
    """The benchmarks at hand."""

    benchmarks: list[Listed]

    def rows(self) -> list[dict[str, Any]]:
        return [benchmark.to_json() for benchmark in self.benchmarks]

    def lines(self) -> list[str]:
        return [line for benchmark in self.benchmarks for line in _lines(benchmark)]

    def to_json(self) -> list[dict[str, Any]]:
        return self.rows()


@documented(BENCH_LS)
def list_benchmarks(*, data: str | PathLike[str] | None = None) -> BenchmarksReport:
    """Return the benchmarks at hand: in the folders of ZEROLM_DATA, in the cache, and in the package.

    With ``data`` those of these folders alone. Raises ``ValueError`` where one is no folder.
    """
    return BenchmarksReport(listing(BENCH_LS.values({"data": data})["data"]))


def _lines(benchmark: Listed) -> list[str]:
    if benchmark.problem:
        return [f"{benchmark.name:<21} {benchmark.problem}"]
    start = f"{benchmark.name:<21} {benchmark.space:<15} {benchmark.count:>5}"
    is_shipped = Path(benchmark.path).parent == SHIPPED
    where = benchmark.source if is_shipped and benchmark.source else benchmark.path
    return [
        f"{start}  {benchmark.licence or '-':<15} {where}",
        f"{'':<21} {', '.join(benchmark.metrics)}",
    ]
