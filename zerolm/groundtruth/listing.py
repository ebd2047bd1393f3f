"""The benchmarks at hand: those of the data folders, of the cache, and of the package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from zerolm.groundtruth.cache import SHIPPED, cache_folder
from zerolm.groundtruth.reader import benchmark_files, data_folders, read
from zerolm.groundtruth.truth import is_line


@dataclass(frozen=True, slots=True)
class Listed:
    """A benchmark and its file; ``problem`` says why that cannot be read.

    ``metrics`` are those that every architecture has; the first is the benchmark's own. ``source`` names the
    paper, or what made it.
    """

    name: str
    path: str
    space: str | None = None
    count: int | None = None
    metrics: tuple[str, ...] = ()
    licence: str | None = None
    source: str | None = None
    problem: str | None = None


def listing(data: str | None = None) -> list[Listed]:
    """Return the benchmarks of the data folders, of the cache and of the package, by name.

    Folders that are named by ``data`` are listed alone.
    """
    folders = data_folders(data)
    return list(_in_folders(folders if data else dict.fromkeys((*folders, cache_folder(), SHIPPED))))


def _in_folders(folders: Iterable[Path]) -> Iterator[Listed]:
    for name, path in sorted(benchmark_files(*folders).items()):
        try:
            truth = read(path)
        except ValueError as error:
            yield Listed(name, str(path), problem=str(error))
            continue
        shared = set.intersection(*(set(entry.results) for entry in truth.architectures))
        metrics = [metric for metric in truth.architectures[0].results if metric in shared]
        texts = {key: text for key, text in truth.source.items() if isinstance(text, str) and is_line(text)}
        yield Listed(
            name,
            str(path),
            truth.space,
            len(truth.architectures),
            tuple(sorted(metrics, key=lambda metric: metric != truth.metric)),
            texts.get("licence"),
            texts.get("paper") or texts.get("made_by"),
        )
