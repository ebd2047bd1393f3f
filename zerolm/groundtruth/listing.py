"""Which benchmarks there are: at hand, and for downloading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zerolm.groundtruth.cache import cache_folder
from zerolm.groundtruth.reader import SHIPPED, benchmark_files, data_folders, read
from zerolm.groundtruth.sources import SOURCES
from zerolm.groundtruth.truth import is_line


@dataclass(frozen=True, slots=True)
class Listed:
    """A benchmark: ``path`` is None where it must be downloaded first.

    ``problem`` says why its file cannot be read. ``metrics`` are those that every architecture has; the first
    is the benchmark's own.
    """

    name: str
    path: str | None
    space: str | None = None
    count: int | None = None
    metrics: tuple[str, ...] = ()
    licence: str | None = None
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def listing(data: str | None = None) -> list[Listed]:
    """The benchmarks of the data folders, else of the cache or the package, and those to download.

    Folders that are named by ``data`` are listed alone.
    """
    folders = data_folders(data)
    if not data:
        folders = tuple(dict.fromkeys((*folders, cache_folder(), SHIPPED)))
    rows = list(_in_folders(folders))
    if data:
        return rows
    return rows + [
        Listed(
            source.name,
            None,
            source.space,
            source.count,
            _first(source.metric, source.metrics),
            source.upstream.licence,
        )
        for source in SOURCES.values()
        if source.name not in {row.name for row in rows}
    ]


def _in_folders(folders: Sequence[Path]) -> Iterator[Listed]:
    for name, path in sorted(benchmark_files(*folders).items()):
        try:
            truth = read(path)
        except ValueError as error:
            yield Listed(name, str(path), problem=str(error))
            continue
        shared = set.intersection(*(set(entry.results) for entry in truth.architectures))
        metrics = [metric for metric in truth.architectures[0].results if metric in shared]
        licence = truth.source.get("licence")
        yield Listed(
            name,
            str(path),
            truth.space,
            len(truth.architectures),
            _first(truth.metric, metrics),
            licence if isinstance(licence, str) and is_line(licence) else None,
        )


def _first(metric: str | None, metrics: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(metrics, key=lambda name: name != metric))
