"""Finding, listing and reading published results, and the networks behind them."""

from __future__ import annotations

import gzip
import logging
import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from zerolm.architecture import Architecture, Floats
from zerolm.calibration.calibrate import LARGEST_RESULT
from zerolm.groundtruth.cache import PACKED, cache_folder, shipped_names
from zerolm.groundtruth.cache import SHIPPED as SHIPPED
from zerolm.groundtruth.csv import read_csv
from zerolm.groundtruth.truth import MAX_BENCHMARK_BYTES, check, is_line
from zerolm.groundtruth.truth import GroundTruth as GroundTruth
from zerolm.io.files import parse_json, read_text
from zerolm.settings import check_known, nearest
from zerolm.spaces import make_space, space_names, space_settings
from zerolm.spaces.flexibert import FLEXIBERT_VIEWS

logger = logging.getLogger(__name__)

FILE_ENDINGS: Final = (".json", ".csv")
MAX_UNPACKED: Final = 8 << 20


@dataclass(frozen=True)
class View:
    """One meaning of a benchmark's configurations.

    ``name`` is None where there is only one meaning; ``settings`` are those of the space that read the
    configurations as ``architectures``.
    """

    name: str | None
    architectures: list[Architecture]
    settings: dict[str, Any]


def data_folders(paths: str | None) -> tuple[Path, ...]:
    """Return the folders with benchmark files: those given, else those of ``ZEROLM_DATA``.

    Where neither names one, they are the user's cache, which need not exist, and the package. Several are
    separated as in ``PATH``; of a name that is in several the first counts.
    """
    named = [name for name in (paths or os.environ.get("ZEROLM_DATA", "")).split(os.pathsep) if name]
    for name in named:
        if not Path(name).is_dir():
            raise ValueError(f"{name!r} is not a folder")
    return tuple(dict.fromkeys(map(Path, named))) or (cache_folder(), SHIPPED)


def same_folders(paths: str | None) -> str:
    """Return the data folders as text that means the same wherever it is read."""
    return os.pathsep.join(str(folder.absolute()) for folder in data_folders(paths))


def known_names(*folders: Path) -> list[str]:
    """The names of the benchmark files in folders."""
    return sorted(benchmark_files(*folders))


def benchmark_files(*folders: Path) -> dict[str, Path]:
    """The benchmark files in folders by name, of the first that has it; of two forms the JSON file."""
    benchmarks = [
        (-place, _form(file) == ".json", file.name, file)
        for place, folder in enumerate(folders)
        for file in folder.glob("*")
        if (_form(file) in FILE_ENDINGS or _is_packed(file)) and file.is_file()
    ]
    return {_name(file): file for *_, file in sorted(benchmarks)}


def _quoted(folders: Sequence[Path]) -> str:
    return " or ".join(repr(str(folder)) for folder in folders)


def _form(path: Path) -> str:
    return path.suffix.lower()


def _name(path: Path) -> str:
    return path.name.removesuffix(PACKED) if _is_packed(path) else path.stem


def _is_packed(path: Path) -> bool:
    return path.parent == SHIPPED and path.name.endswith(PACKED)


def chosen(names: Sequence[str], data: str | None, *, every: bool = False) -> list[str]:
    """The benchmarks that are meant: those named, or ``every`` one of the data folder; never none."""
    if names and every:
        raise ValueError(f"either name benchmarks or ask for --all, not both ({', '.join(names)} and --all)")
    if names:
        return list(names)
    folders = data_folders(data)
    names = known_names(*folders)
    if not names:
        raise ValueError(
            f"{_quoted(folders)} holds no benchmark; {', '.join(shipped_names())} can be named without"
        )
    if not every:
        raise ValueError(f"no benchmark is named; there are {', '.join(names)}, or --all of them")
    return names


def is_file_name(name: str) -> bool:
    """Return whether a benchmark is named by its file, not by its name in the data folder."""
    return _form(Path(name)) in FILE_ENDINGS or Path(name).name != name


def locate(name: str, data: str | None) -> Path:
    """The file of a benchmark named by a path, or by its name in the data folders or among those shipped."""
    path = Path(name)
    if is_file_name(name):
        return path
    folders = data_folders(data)
    files = benchmark_files(*folders, SHIPPED)
    if name in files:
        return files[name]
    if path.exists():
        kind = "a folder" if path.is_dir() else f"a file without the ending {' or '.join(FILE_ENDINGS)}"
        raise ValueError(f"{name!r} is {kind}; give a file of results, or the name of a benchmark")
    raise ValueError(f"benchmark {name!r} is not in {_quoted(folders)}{nearest(name, sorted(files))}")


def read(path: Path) -> GroundTruth:
    """Read and check a benchmark file, JSON or CSV; ``ValueError`` says what is wrong with it."""
    form = _form(path)
    logger.info("reading %s", path)
    if form == ".csv":
        return read_csv(path)
    try:
        if form != ".json" and not _is_packed(path) and path.is_file():
            raise ValueError(f"only {' and '.join(FILE_ENDINGS)} files are read")
        document = parse_json(unpacked(path) if _is_packed(path) else read_text(path, MAX_BENCHMARK_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"benchmark file {str(path)!r} cannot be read: {error}") from None
    try:
        return check(document)
    except ValueError as error:
        raise ValueError(f"benchmark file {str(path)!r}: {error}") from None


def unpacked(path: Path) -> str:
    """Return the text of a packed file; ``ValueError`` where it is damaged, or too large."""
    try:
        with gzip.open(path) as file:
            content = file.read(MAX_UNPACKED + 1)
    except (EOFError, zlib.error) as error:
        raise ValueError(f"it is damaged: {error}") from None
    if len(content) > MAX_UNPACKED:
        raise ValueError(f"it holds more than {MAX_UNPACKED} bytes")
    return content.decode()


def quality(truth: GroundTruth, metric: str) -> Floats:
    """The results by one metric, (n,), signed so that higher is better."""
    values = []
    for entry in truth.architectures:
        if metric not in entry.results:
            metrics = ", ".join(sorted(entry.results)) or "none"
            place = f"benchmark {truth.name}: architecture {entry.id}"
            raise ValueError(f"{place} has no metric {metric!r}; it has {metrics}")
        if not math.isfinite(entry.results[metric]):
            raise ValueError(f"benchmark {truth.name}: {metric} of {entry.id} is not a finite number")
        if abs(entry.results[metric]) > LARGEST_RESULT:
            raise ValueError(
                f"benchmark {truth.name}: {metric} of {entry.id} is {entry.results[metric]:g}: choose a unit "
                f"with at most {LARGEST_RESULT:g}"
            )
        values.append(entry.results[metric])
    sign = 1.0 if truth.is_higher_better(metric) else -1.0
    return sign * np.array(values)


def ranked(truth: GroundTruth, metric: str) -> Floats:
    """The results by one metric as ``quality`` gives them; ``ValueError`` where all are the same."""
    result = quality(truth, metric)
    if np.all(result == result[0]):
        same = f"all {len(result)} results of {metric} are the same"
        raise ValueError(f"benchmark {truth.name}: {same}: nothing can be ranked")
    return result


def named_corpus(truth: GroundTruth) -> str | None:
    """The corpus that the name or the task of a benchmark speaks of, as in those that are published."""
    words = f"{truth.name} {truth.task}".lower()
    if "lm1b" in words:
        return "lm1b"
    return "wt103" if "wt103" in words or "wikitext-103" in words else None


def views(truth: GroundTruth) -> list[View]:
    """The networks behind the configurations, once for each way to read them.

    A file that fixes the settings of its space has one reading, named by the setting ``view`` if it is there.
    What it says that all its networks share counts as settings, too, where the space has them.
    """
    check_known(f"benchmark {truth.name}: space", truth.space, space_names())
    declared = space_settings(truth.space)
    settings = truth.settings
    if settings is None:
        settings = {name: value for name, value in truth.shared.items() if name in declared} or None
    if settings is not None:
        return [View(settings.get("view"), _networks(truth, settings), settings)]
    if "view" in declared:
        return [View(view, _networks(truth, {"view": view}), {"view": view}) for view in FLEXIBERT_VIEWS]
    settings = {"corpus": named_corpus(truth) or "wt103"} if "corpus" in declared else {}
    return [View(None, _networks(truth, settings), settings)]


def _networks(truth: GroundTruth, settings: dict[str, Any]) -> list[Architecture]:
    try:
        space = make_space(truth.space, **settings)
    except (TypeError, ValueError) as error:
        raise ValueError(f"benchmark {truth.name}: the settings do not fit: {error}") from None
    networks = []
    for entry in truth.architectures:
        try:
            networks.append(space.read(entry.architecture))
        except ValueError as error:
            raise ValueError(f"benchmark {truth.name}: architecture {entry.id}: {error}") from None
    return networks


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
    folders = data_folders(data) if data else dict.fromkeys((*data_folders(data), cache_folder(), SHIPPED))
    listed = []
    for name, path in sorted(benchmark_files(*folders).items()):
        try:
            truth = read(path)
        except ValueError as error:
            listed.append(Listed(name, str(path), problem=str(error)))
            continue
        shared = set.intersection(*(set(entry.results) for entry in truth.architectures))
        metrics = [metric for metric in truth.architectures[0].results if metric in shared]
        texts = {key: text for key, text in truth.source.items() if isinstance(text, str) and is_line(text)}
        metrics.sort(key=lambda metric: metric != truth.metric)
        source, count = texts.get("paper") or texts.get("made_by"), len(truth.architectures)
        licence = texts.get("licence")
        listed.append(Listed(name, str(path), truth.space, count, tuple(metrics), licence, source))
    return listed
