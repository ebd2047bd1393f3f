"""Labels of one's own from a file, and calibrations as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from zerolm.architecture import Architecture, Floats
from zerolm.calibration import Calibration, Judgement, Labels, Pool, calibrate
from zerolm.calibration.calibrate import MOST_LABELS
from zerolm.groundtruth.reader import locate, named_corpus, quality, read, views
from zerolm.groundtruth.truth import Line
from zerolm.io.files import parse_json, read_text
from zerolm.io.plain import first_problem
from zerolm.settings import shown
from zerolm.spaces import SPACES, SearchSpace, make_space

MAX_CALIBRATION_BYTES: Final = 64 << 20
READING: Final = ("view", "corpus", "parent_config")
"""Settings that decide what a configuration means; the others are ranges."""
LONGEST_SHOWN: Final = 40


def read_labels(path: Path | str, *, space: SearchSpace | None = None, metric: str | None = None) -> Labels:
    """Labels from a CSV or JSON file of trained architectures.

    With ``space`` the configurations are read as that space does, and must be of it, and of its corpus where
    the file's settings, name or task determine theirs. Otherwise the file determines it, or the default of
    the space. ``metric`` is the file's own unless named. The result of an architecture that is there more
    than once is the mean of its results. Raises ``ValueError`` for a file of another space, or an
    architecture that the space does not know.
    """
    file = Path(path)
    truth = read(file if file.exists() else locate(str(path), None))
    if space is not None and truth.space != space.name:
        raise ValueError(
            f"the labels in {str(path)!r} are of space {truth.space!r}, but the search is of {space.name!r}"
        )
    metric = truth.metric_of(metric)
    result = quality(truth, metric)
    if space is not None:
        conditions, corpus = truth.settings, named_corpus(truth)
        if conditions is None:
            conditions = {"corpus": corpus} if corpus else {}
        same_reading(conditions, space, f"the labels in {str(path)!r}")
        truth = truth.model_copy(update={"settings": space.settings})
    reading = views(truth)[0]
    distinct, means = _distinct(reading.architectures, result)
    if len(distinct) > MOST_LABELS:
        count = f"{str(path)!r} holds {len(distinct)} architectures"
        raise ValueError(f"{count}; at most {MOST_LABELS} can be fitted")
    return Labels(
        truth.space,
        reading.settings,
        metric,
        truth.is_higher_better(metric),
        Pool.of([reading.architectures[i] for i in distinct]),
        means,
        repeated=len(result) - len(distinct),
    )


def labelled_settings(path: Path | str, space: str) -> dict[str, Any]:
    """Return the settings of a label file where they say which network all others are cut out of; else none.

    So they are where ``space`` is of one parent, and the file is of that space.
    """
    if not SPACES[space].is_of_one_parent:
        return {}
    file = Path(path)
    truth = read(file if file.exists() else locate(str(path), None))
    return dict(truth.settings or {}) if truth.space == space else {}


def benchmark_of(labels: Labels) -> dict[str, Any]:
    """Return labels as a document in the format of benchmark files."""
    sign = 1.0 if labels.higher_is_better else -1.0
    pairs = zip(labels.pool.architectures, labels.result, strict=True)
    return {
        "name": "labels",
        "space": labels.space,
        "settings": labels.settings,
        "metric": labels.metric,
        "higher_is_better": labels.higher_is_better,
        "architectures": [
            {"id": str(i), "architecture": one.choices, "results": {labels.metric: sign * float(value)}}
            for i, (one, value) in enumerate(pairs)
        ],
    }


def _reading(space: SearchSpace) -> dict[str, Any]:
    return {name: value for name, value in space.settings.items() if name in READING}


def same_reading(settings: Mapping[str, Any], space: SearchSpace, what: str) -> None:
    """Refuse settings that give configurations another meaning than ``space`` does."""
    for name, value in _reading(space).items():
        if name in settings and settings[name] != value:
            raise ValueError(
                f"{what} are of {name} {_short(settings[name])}, but the search is of {_short(value)}: give "
                f"--{name} {settings[name]}"
            )


def _short(value: Any) -> str:
    return shown(value) if len(str(value)) > LONGEST_SHOWN else repr(value)


def _distinct(architectures: Sequence[Architecture], result: Floats) -> tuple[list[int], Floats]:
    """Return the first place of each architecture, and the mean of its results.

    What a file may write in several ways (one width, or a list of it) counts as read.
    """
    firsts: dict[str, int] = {}
    names = [json.dumps(architecture.choices, sort_keys=True) for architecture in architectures]
    numbers = np.array([firsts.setdefault(name, len(firsts)) for name in names], np.intp)
    _, places = np.unique(numbers, return_index=True)
    return places.tolist(), np.bincount(numbers, result) / np.bincount(numbers)


class _Label(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    architecture: dict[str, Any]
    result: FiniteFloat


class _Document(BaseModel):
    """A calibration as JSON. Its numbers are there to be read; loading fits the labels again."""

    model_config = ConfigDict(extra="ignore", strict=True)
    format: Literal["zerolm-calibration"]
    version: Literal[1]
    space: Line
    settings: dict[str, Any]
    metric: Line
    higher_is_better: bool
    method: Literal["stack", "dictionary", "gp", "blend", "algorithm1"]
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
    labels: Annotated[list[_Label], Field(min_length=2, max_length=MOST_LABELS)]
    repeated: Annotated[int, Field(ge=0)] = 0


def to_document(calibration: Calibration, judgement: Judgement | None = None) -> dict[str, Any]:
    """Plain JSON of a calibration, with all that is needed to fit it again anywhere."""
    labels = calibration.labels
    sign = 1.0 if labels.higher_is_better else -1.0
    alpha, dictionary = calibration.alpha, calibration.dictionary
    warnings = list(calibration.warnings)
    if judgement and judgement.not_beaten:
        warnings.append(f"on hidden labels it does not beat {' and '.join(judgement.not_beaten)}")
    return {
        "format": "zerolm-calibration",
        "version": 1,
        "space": labels.space,
        "settings": labels.settings,
        "metric": labels.metric,
        "higher_is_better": labels.higher_is_better,
        "method": calibration.method,
        "seed": calibration.seed,
        "weights": calibration.weights or None,
        "alpha": alpha.alpha if alpha else None,
        "literal_alpha": alpha.literal if alpha else None,
        "dictionary": [
            {"entry": str(entry), "weight": weight}
            for entry, weight in zip(dictionary.entries, dictionary.weights, strict=True)
        ]
        if dictionary
        else None,
        "features": calibration.predictor.shares() if calibration.predictor else None,
        "warnings": warnings,
        "judged": asdict(judgement) if judgement else None,
        "labels": [
            {"architecture": architecture.choices, "result": sign * float(value)}
            for architecture, value in zip(labels.pool.architectures, labels.result, strict=True)
        ],
        "repeated": labels.repeated,
    }


def from_document(document: Any, *, space: SearchSpace | None = None) -> Calibration:
    """The calibration of a document of ``to_document``, fitted again; ``ValueError`` if it is none.

    With ``space`` its labels are read as that space does, and must be of it.
    """
    try:
        checked = _Document.model_validate(document)
    except ValidationError as error:
        raise ValueError(first_problem(error, "it", document)) from None
    if space is not None and checked.space != space.name:
        raise ValueError(f"its labels are of space {checked.space!r}, but the search is of {space.name!r}")
    labelled_space = _space(checked)  # settings that it does not take are refused, whichever space reads
    space = space or labelled_space
    same_reading(checked.settings, space, "its labels")
    architectures = [space.read(label.architecture) for label in checked.labels]
    sign = 1.0 if checked.higher_is_better else -1.0
    places, means = _distinct(architectures, sign * np.array([label.result for label in checked.labels]))
    labels = Labels(
        checked.space,
        {**checked.settings, **_reading(space)},
        checked.metric,
        checked.higher_is_better,
        Pool.of([architectures[place] for place in places]),
        means,
        checked.repeated,
    )
    return calibrate(labels, checked.method, seed=checked.seed)


def _space(document: _Document) -> SearchSpace:
    try:
        return make_space(document.space, **document.settings)
    except TypeError as error:
        raise ValueError(f"the settings do not fit space {document.space!r}: {error}") from None


def load(path: Path, *, space: SearchSpace | None = None) -> Calibration:
    """A calibration from its JSON file; ``ValueError`` in one line if it is none, or of another space."""
    try:
        return from_document(parse_json(read_text(path, MAX_CALIBRATION_BYTES)), space=space)
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"calibration {str(path)!r} cannot be used: {error}") from None


def as_labelled(calibration: Calibration, architecture: Architecture) -> Architecture:
    """The same choices as the labels' space reads them, with its vocabulary and whatever else it fixes."""
    labels = calibration.labels
    if architecture.space != labels.space:
        raise ValueError(
            f"the labels are of space {labels.space!r}, but the architecture is of {architecture.space!r}"
        )
    return make_space(labels.space, **labels.settings).read(architecture.choices)
