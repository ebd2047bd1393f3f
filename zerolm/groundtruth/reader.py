"""Finding and reading published results, and the networks behind them."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from zerolm.architecture import Architecture, Floats
from zerolm.files import parse_json, read_text
from zerolm.groundtruth.cache import cache_folder
from zerolm.groundtruth.csv_reader import read_csv
from zerolm.groundtruth.sources import SOURCES
from zerolm.groundtruth.truth import (
    MAX_BYTES,
    Entry,
    GroundTruth,
    check,
    repeats,
)
from zerolm.spaces import make_space, space_names, space_settings
from zerolm.spaces.flexibert import VIEWS

__all__ = [
    "Entry",
    "GroundTruth",
    "View",
    "data_folder",
    "known_names",
    "locate",
    "parse_json",
    "quality",
    "read",
    "read_csv",
    "read_text",
    "repeats",
    "views",
]

FORMATS: Final = (".json", ".csv")


@dataclass(frozen=True)
class View:
    """What a benchmark's configurations are taken to mean.

    ``name`` is None where there is only one meaning; ``settings`` are those of the space that read the
    configurations as ``architectures``.
    """

    name: str | None
    architectures: list[Architecture]
    settings: dict[str, Any]


def data_folder(given: str | None) -> Path:
    """The folder with benchmark files: the one given, else that of ``ZEROLM_DATA``, else the user's cache.

    The cache need not exist yet.
    """
    folder = given or os.environ.get("ZEROLM_DATA")
    if not folder:
        return cache_folder()
    if not Path(folder).is_dir():
        raise ValueError(f"{folder!r} is not a folder")
    return Path(folder)


def known_names(folder: Path) -> list[str]:
    """The names of the benchmark files in a folder."""
    return sorted({file.stem for form in FORMATS for file in folder.glob(f"*{form}") if file.is_file()})


def locate(name: str, data: str | None) -> Path:
    """The file of a benchmark named by a path, or by its name in the data folder."""
    path = Path(name)
    if path.suffix in FORMATS or path.name != name:
        if not path.is_file():
            raise ValueError(f"benchmark file {name!r} does not exist, or is no file")
        return path
    folder = data_folder(data)
    for form in FORMATS:
        if (folder / f"{name}{form}").is_file():
            return folder / f"{name}{form}"
    known = ", ".join(known_names(folder)) or "none"
    remedy = f"download {name}' fetches it" if name in SOURCES else f"download' fetches {', '.join(SOURCES)}"
    raise ValueError(
        f"benchmark {name!r} is not in {str(folder)!r}; there are {known}; 'zerolm bench {remedy}"
    )


def read(path: Path) -> GroundTruth:
    """Read and check a benchmark file, JSON or CSV; ``ValueError`` says what is wrong with it."""
    if path.suffix == ".csv":
        return read_csv(path)
    try:
        document = parse_json(read_text(path, MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"benchmark file {str(path)!r} cannot be read: {error}") from None
    try:
        return check(document)
    except ValueError as error:
        raise ValueError(f"benchmark file {str(path)!r}: {error}") from None


def quality(truth: GroundTruth, metric: str) -> Floats:
    """The results by one metric, (n,), signed so that higher is better."""
    values = []
    for entry in truth.architectures:
        if metric not in entry.results:
            known = ", ".join(sorted(entry.results)) or "none"
            raise ValueError(f"benchmark {truth.name}: {entry.id} has no metric {metric!r}; it has {known}")
        if not math.isfinite(entry.results[metric]):
            raise ValueError(f"benchmark {truth.name}: {metric} of {entry.id} is not a finite number")
        values.append(entry.results[metric])
    sign = 1.0 if truth.is_higher_better(metric) else -1.0
    return sign * np.array(values)


def views(truth: GroundTruth) -> list[View]:
    """The networks behind the configurations, once for each way to read them.

    A file that fixes the settings of its space has one reading, named by the setting ``view`` if it is there.
    """
    if truth.space not in space_names():
        known_spaces = ", ".join(space_names())
        raise ValueError(
            f"benchmark {truth.name}: space {truth.space!r} is not known; there are {known_spaces}"
        )
    settings = truth.settings
    if settings is not None:
        return [View(settings.get("view"), _networks(truth, settings), settings)]
    known = space_settings(truth.space)
    if "view" in known:
        return [View(view, _networks(truth, {"view": view}), {"view": view}) for view in VIEWS]
    settings = {}
    if "corpus" in known:
        settings["corpus"] = "lm1b" if "lm1b" in (truth.task + truth.name).lower() else "wt103"
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
