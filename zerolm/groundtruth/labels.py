"""Labels of one's own from a file, and calibrations as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from zerolm.calibration import Calibration, Judgement, Labels, Pool, calibrate
from zerolm.calibration.calibrate import MOST
from zerolm.groundtruth.reader import quality, read, views
from zerolm.groundtruth.truth import GroundTruth, parse_json, read_text, repeats
from zerolm.spaces import SearchSpace, make_space

MAX_BYTES: Final = 64 << 20
READING: Final = ("view", "corpus")
"""Settings that decide what a configuration means; the others are ranges."""


def read_labels(path: Path, *, space: SearchSpace | None = None, metric: str | None = None) -> Labels:
    """Labels from a CSV or JSON file of trained architectures.

    With ``space`` the configurations are read as that space does, and must be of it; else as the file
    says, and where it leaves that open as the space does by default. ``metric`` is the file's own unless
    named. Raises ``ValueError`` for a file of another space, an architecture that the space does not
    know, or one that is there twice with different results.
    """
    truth = read(path)
    if space is not None and truth.space != space.name:
        raise ValueError(
            f"the labels in {str(path)!r} are of space {truth.space!r}, but the search is of {space.name!r}"
        )
    metric = metric or truth.metric
    result = quality(truth, metric)
    kept = _distinct(truth, metric)
    if len(kept) > MOST:
        raise ValueError(f"{str(path)!r} holds {len(kept)} architectures; at most {MOST} can be fitted")
    if space is not None:
        same_reading(truth.settings or {}, space, f"the labels in {str(path)!r}")
        truth = truth.model_copy(update={"settings": _reading(space)})
    reading = views(truth)[0]
    return Labels(
        truth.space,
        reading.settings,
        metric,
        truth.is_higher_better(metric),
        Pool.of([reading.architectures[i] for i in kept]),
        result[kept],
    )


def _reading(space: SearchSpace) -> dict[str, Any]:
    return {name: value for name, value in space.settings.items() if name in READING}


def same_reading(settings: Mapping[str, Any], space: SearchSpace, what: str) -> None:
    """Refuse settings that give configurations another meaning than ``space`` does."""
    for name, value in _reading(space).items():
        if name in settings and settings[name] != value:
            raise ValueError(
                f"{what} are of {name} {settings[name]!r}, but the search is of {value!r}: give --{name} "
                f"{settings[name]}"
            )


def of_space(calibration: Calibration, space: SearchSpace, path: str) -> None:
    """Refuse a calibration of another space than the one that is searched."""
    labels = calibration.labels
    if labels.space != space.name:
        raise ValueError(
            f"the labels of {path!r} are of space {labels.space!r}, but the search is of {space.name!r}"
        )
    same_reading(labels.settings, space, f"the labels of {path!r}")


def _distinct(truth: GroundTruth, metric: str) -> list[int]:
    """The places of the architectures, one for each that is there more than once with equal results."""
    dropped: set[str] = set()
    for group in repeats(truth):
        first, *others = group
        for other in others:
            if other.results[metric] != first.results[metric]:
                raise ValueError(
                    f"benchmark {truth.name}: {first.id} and {other.id} are the same architecture, but have "
                    f"{metric} {first.results[metric]:g} and {other.results[metric]:g}; keep their mean"
                )
            dropped.add(other.id)
    return [i for i, entry in enumerate(truth.architectures) if entry.id not in dropped]


class _Label(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    architecture: dict[str, Any]
    result: FiniteFloat


class _Document(BaseModel):
    """A calibration as JSON. What was found is there to be read; loading fits the labels again."""

    model_config = ConfigDict(extra="ignore", strict=True)
    format: Literal["zerolm-calibration"]
    version: Literal[1]
    space: str
    settings: dict[str, Any]
    metric: str
    higher_is_better: bool
    method: Literal["dictionary", "gp", "blend", "algorithm1", "algorithm2"]
    labels: Annotated[list[_Label], Field(min_length=2, max_length=MOST)]


def to_document(calibration: Calibration, judgement: Judgement | None = None) -> dict[str, Any]:
    """Plain JSON of a calibration, with all that is needed to fit it again anywhere."""
    labels = calibration.labels
    sign = 1.0 if labels.higher_is_better else -1.0
    alpha, dictionary = calibration.alpha, calibration.dictionary
    return {
        "format": "zerolm-calibration",
        "version": 1,
        "space": labels.space,
        "settings": labels.settings,
        "metric": labels.metric,
        "higher_is_better": labels.higher_is_better,
        "requested": calibration.requested,
        "method": calibration.method,
        "alpha": alpha.alpha if alpha else None,
        "literal_alpha": alpha.literal if alpha else None,
        "dictionary": [
            {"entry": str(entry), "weight": weight}
            for entry, weight in zip(dictionary.entries, dictionary.weights, strict=True)
        ]
        if dictionary
        else None,
        "features": calibration.predictor.shares() if calibration.predictor else None,
        "warnings": list(calibration.warnings),
        "judged": asdict(judgement) if judgement else None,
        "labels": [
            {"architecture": architecture.choices, "result": sign * float(value)}
            for architecture, value in zip(labels.pool.architectures, labels.result, strict=True)
        ],
    }


def from_document(document: Any) -> Calibration:
    """The calibration of a document of ``to_document``, fitted again; ``ValueError`` if it is none."""
    try:
        found = _Document.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        raise ValueError(f"{place}: {first['msg'].lower()}") from None
    try:
        space = make_space(found.space, **found.settings)
    except TypeError as error:
        raise ValueError(f"the settings do not fit space {found.space!r}: {error}") from None
    sign = 1.0 if found.higher_is_better else -1.0
    labels = Labels(
        found.space,
        found.settings,
        found.metric,
        found.higher_is_better,
        Pool.of([space.read(label.architecture) for label in found.labels]),
        sign * np.array([label.result for label in found.labels]),
    )
    return calibrate(labels, found.method)


def load(path: Path) -> Calibration:
    """A calibration from its JSON file; ``ValueError`` in one line if it is none."""
    try:
        return from_document(parse_json(read_text(path, MAX_BYTES)))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"calibration {str(path)!r} cannot be used: {error}") from None
