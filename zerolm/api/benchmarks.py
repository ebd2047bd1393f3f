"""``zerolm.list_benchmarks`` and ``zerolm.download_benchmarks``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from zerolm.api.documented import documented
from zerolm.api.report import Shown
from zerolm.commands.listings import BENCH_DOWNLOAD, BENCH_LS
from zerolm.groundtruth.cache import cache_folder
from zerolm.groundtruth.download.benchmarks import Stored, download
from zerolm.groundtruth.listing import Listed, listing
from zerolm.progress import Progress, silent


@dataclass(frozen=True, repr=False)
class BenchmarksReport(Shown):
    """The benchmarks at hand, and those that can be downloaded."""

    benchmarks: list[Listed]

    def rows(self) -> list[dict[str, Any]]:
        return [benchmark.to_json() for benchmark in self.benchmarks]

    def lines(self) -> list[str]:
        return [line for benchmark in self.benchmarks for line in _lines(benchmark)]

    def to_json(self) -> list[dict[str, Any]]:
        return self.rows()


@dataclass(frozen=True, repr=False)
class DownloadReport(Shown):
    """The benchmarks that were asked for, in the cache now."""

    benchmarks: list[Stored]

    def rows(self) -> list[dict[str, Any]]:
        return [benchmark.to_json() for benchmark in self.benchmarks]

    def lines(self) -> list[str]:
        return [f"{stored.name:<21} {stored.licence:<11} {stored.path}" for stored in self.benchmarks]

    def to_json(self) -> list[dict[str, Any]]:
        return self.rows()

    @property
    def remarks(self) -> list[str]:
        remarks = [f"{stored.name} is already there" for stored in self.benchmarks if not stored.fetched]
        folder = os.environ.get("ZEROLM_DATA")
        if folder:
            remarks.append(
                f"ZEROLM_DATA is set, so names stand for files in {folder!r}; unset it, or give "
                f"--data {str(cache_folder())!r}"
            )
        return remarks


@documented(BENCH_LS)
def list_benchmarks(*, data: str | PathLike[str] | None = None) -> BenchmarksReport:
    """Return the benchmarks at hand, in the folders of ZEROLM_DATA and in the cache, and those to download.

    With ``data`` those of these folders alone. Raises ``ValueError`` where one is no folder.
    """
    return BenchmarksReport(listing(BENCH_LS.values({"data": data})["data"]))


@documented(BENCH_DOWNLOAD)
def download_benchmarks(
    names: str | Sequence[str] | None = None,
    *,
    force: bool = False,
    progress: Progress = silent,
) -> DownloadReport:
    """Return where the benchmarks are, all eight if none is named, after fetching those that are not there.

    Raises ``ValueError`` for an unknown name, and where anything fails; then nothing is written.
    """
    own = BENCH_DOWNLOAD.values({"names": names, "force": force})
    return DownloadReport(download(own["names"] or (), force=own["force"], progress=progress))


def _lines(benchmark: Listed) -> list[str]:
    if benchmark.problem:
        return [f"{benchmark.name:<21} {benchmark.problem}"]
    where = benchmark.path or f"zerolm bench download {benchmark.name}"
    start = f"{benchmark.name:<21} {benchmark.space:<15} {benchmark.count:>5}"
    return [
        f"{start}  {benchmark.licence or '-':<11} {where}",
        f"{'':<21} {', '.join(benchmark.metrics)}",
    ]
