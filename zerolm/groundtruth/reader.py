"""Reading published results: architectures with what they reached when they were trained."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from zerolm.architecture import Architecture, Floats
from zerolm.spaces import make_space, space_names, space_settings
from zerolm.spaces.flexibert import VIEWS

MAX_BYTES: Final = 256 << 20


class Entry(BaseModel):
    """One trained architecture."""

    model_config = ConfigDict(extra="ignore", strict=True)
    id: str
    architecture: dict[str, Any]
    results: dict[str, float]


class GroundTruth(BaseModel):
    """A benchmark file: architectures of one space with their results."""

    model_config = ConfigDict(extra="ignore", strict=True)
    name: Annotated[str, Field(pattern=r"^[^\x00-\x1f]{1,200}$")]
    space: str
    metric: str
    higher_is_better: bool
    task: str = ""
    count: int | None = None
    architectures: Annotated[list[Entry], Field(min_length=2)]


@dataclass(frozen=True)
class View:
    """What a benchmark's configurations are taken to mean: a name (None: only one meaning) and networks."""

    name: str | None
    architectures: list[Architecture]


def data_folder(given: str | None) -> Path:
    """The folder with benchmark files: the one given, else that of ``ZEROLM_DATA``."""
    folder = given or os.environ.get("ZEROLM_DATA")
    if not folder:
        raise ValueError("no benchmark folder: give --data FOLDER, or set ZEROLM_DATA")
    if not Path(folder).is_dir():
        raise ValueError(f"{folder!r} is not a folder")
    return Path(folder)


def known_names(folder: Path) -> list[str]:
    """The names of the benchmark files in a folder."""
    return sorted(file.stem for file in folder.glob("*.json"))


def locate(name: str, data: str | None) -> Path:
    """The file of a benchmark named by a path, or by its name in the data folder."""
    path = Path(name)
    if path.suffix == ".json" or path.name != name:
        if not path.is_file():
            raise ValueError(f"benchmark file {name!r} does not exist, or is no file")
        return path
    folder = data_folder(data)
    known = known_names(folder)
    if name not in known:
        raise ValueError(
            f"benchmark {name!r} is not in {str(folder)!r}; there are {', '.join(known) or 'none'}"
        )
    return folder / f"{name}.json"


def read_text(path: Path, most: int) -> str:
    """The text of a regular file of at most ``most`` bytes; ``ValueError`` for another."""
    if not path.is_file():
        raise ValueError("it is not a regular file")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it is larger than {most} bytes")
    return content.decode("utf-8")


def parse_json(text: str) -> Any:
    """JSON whose objects name each field once; ``ValueError`` else."""

    def fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"field {next(n for n in names if names.count(n) > 1)!r} is given twice")
        return found

    return json.loads(text, object_pairs_hook=fields)


def read(path: Path) -> GroundTruth:
    """Read and check a benchmark file; ``ValueError`` says what is wrong with it."""
    try:
        document = parse_json(read_text(path, MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"benchmark file {str(path)!r} cannot be read: {error}") from None
    try:
        truth = GroundTruth.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise ValueError(f"benchmark file {str(path)!r}: {place}: {first['msg'].lower()}") from None
    ids = {entry.id for entry in truth.architectures}
    if len(ids) < len(truth.architectures):
        raise ValueError(f"benchmark file {str(path)!r}: some architectures have the same id")
    if truth.count is not None and truth.count != len(truth.architectures):
        raise ValueError(
            f"benchmark file {str(path)!r} promises {truth.count} architectures, but has "
            f"{len(truth.architectures)}"
        )
    return truth


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
    sign = 1.0 if truth.higher_is_better else -1.0
    return sign * np.array(values)


def views(truth: GroundTruth) -> list[View]:
    """The networks behind the configurations, once for each way to read them."""
    if truth.space not in space_names():
        known_spaces = ", ".join(space_names())
        raise ValueError(
            f"benchmark {truth.name}: space {truth.space!r} is not known; there are {known_spaces}"
        )
    known = space_settings(truth.space)
    if "view" in known:
        return [View(view, _networks(truth, {"view": view})) for view in VIEWS]
    if "corpus" in known:
        corpus = "lm1b" if "lm1b" in (truth.task + truth.name).lower() else "wt103"
        return [View(None, _networks(truth, {"corpus": corpus}))]
    return [View(None, _networks(truth, {}))]


def _networks(truth: GroundTruth, settings: dict[str, Any]) -> list[Architecture]:
    space = make_space(truth.space, **settings)
    networks = []
    for entry in truth.architectures:
        try:
            networks.append(space.read(entry.architecture))
        except ValueError as error:
            raise ValueError(f"benchmark {truth.name}: architecture {entry.id}: {error}") from None
    return networks
