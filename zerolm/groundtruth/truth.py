"""Published results as objects: architectures with what they reached when they were trained."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MAX_BYTES: Final = 256 << 20


class Entry(BaseModel):
    """One trained architecture."""

    model_config = ConfigDict(extra="ignore", strict=True)
    id: str
    architecture: dict[str, Any]
    results: dict[str, float]


class GroundTruth(BaseModel):
    """A benchmark file: architectures of one space with their results.

    ``higher_is_better`` holds for ``metric``, and for every other result that ``directions`` does not name.
    ``settings`` are those of the space, if the file fixes them.
    """

    model_config = ConfigDict(extra="ignore", strict=True)
    name: Annotated[str, Field(pattern=r"^[^\x00-\x1f]{1,200}$")]
    space: str
    metric: str
    higher_is_better: bool
    directions: dict[str, Literal["higher", "lower"]] = {}
    settings: dict[str, Any] | None = None
    task: str = ""
    source: dict[str, Any] = {}
    count: int | None = None
    architectures: Annotated[list[Entry], Field(min_length=2)]

    def is_higher_better(self, metric: str) -> bool:
        """The direction of one metric."""
        named = self.directions.get(metric)
        return self.higher_is_better if named is None else named == "higher"


def check(document: Any) -> GroundTruth:
    """The ground truth that a document in the common format holds; ``ValueError`` says what is wrong."""
    try:
        truth = GroundTruth.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise ValueError(f"{place}: {first['msg'].lower()}") from None
    if len({entry.id for entry in truth.architectures}) < len(truth.architectures):
        raise ValueError("some architectures have the same id")
    if truth.count is not None and truth.count != len(truth.architectures):
        raise ValueError(
            f"it promises {truth.count} architectures, but has {len(truth.architectures)} of them"
        )
    return truth


def repeats(truth: GroundTruth) -> list[list[Entry]]:
    """The architectures that were trained more than once: their entries, in the file's order."""
    groups: dict[str, list[Entry]] = {}
    for entry in truth.architectures:
        groups.setdefault(json.dumps(entry.architecture, sort_keys=True), []).append(entry)
    return [group for group in groups.values() if len(group) > 1]
