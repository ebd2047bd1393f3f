"""Published results as objects: architectures with what they reached when they were trained."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

MAX_BYTES: Final = 256 << 20
_LINE: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,200}")
NO_LINE: Final = "must be one line of at most 200 characters"


def is_line(text: str) -> bool:
    """Whether a text can be printed as it is: not empty, not long, and without control characters."""
    return _LINE.fullmatch(text) is not None


def _line(text: str) -> str:
    if not is_line(text):
        raise PydanticCustomError("line", NO_LINE)
    return text


Line = Annotated[str, AfterValidator(_line)]
"""What is printed as it is: names, ids, metrics."""


class Entry(BaseModel):
    """One trained architecture."""

    model_config = ConfigDict(extra="ignore", strict=True)
    id: Line
    architecture: dict[str, Any]
    results: dict[Line, float]


class GroundTruth(BaseModel):
    """A benchmark file: architectures of one space with their results.

    ``higher_is_better`` holds for ``metric``, and for every other result that ``directions`` does not name.
    ``settings`` are those of the space, if the file fixes them.
    """

    model_config = ConfigDict(extra="ignore", strict=True)
    name: Line
    space: Line
    metric: Line
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
        raise ValueError(first_problem(error, "the file")) from None
    if len({entry.id for entry in truth.architectures}) < len(truth.architectures):
        raise ValueError("some architectures have the same id")
    if truth.count is not None and truth.count != len(truth.architectures):
        raise ValueError(
            f"it promises {truth.count} architectures, but has {len(truth.architectures)} of them"
        )
    return truth


def first_problem(error: ValidationError, whole: str) -> str:
    """Where a document is wrong, and how, in one line; ``whole`` is what the document itself is called."""
    first = error.errors()[0]
    steps = (str(step) for step in first["loc"] if step != "[key]")
    place = ".".join(step if is_line(step) else ascii(step)[:60] for step in steps) or whole
    if first["type"] in ("dict_type", "model_type"):
        return f"{place}: must be a JSON object"
    return f"{place}: {first['msg'].lower()}"


def thinned(truth: GroundTruth, count: int | None) -> GroundTruth:
    """At most ``count`` of the architectures, evenly spread over the file; all of them for None."""
    total = len(truth.architectures)
    if count is None or count >= total:
        return truth
    if count < 2:
        raise ValueError(f"benchmark {truth.name}: {count} of {total} architectures cannot be ranked; take 2")
    kept = [truth.architectures[place * total // count] for place in range(count)]
    return truth.model_copy(update={"architectures": kept, "count": count})


def repeats(truth: GroundTruth) -> list[list[Entry]]:
    """The architectures that were trained more than once: their entries, in the file's order."""
    groups: dict[str, list[Entry]] = {}
    for entry in truth.architectures:
        groups.setdefault(json.dumps(entry.architecture, sort_keys=True), []).append(entry)
    return [group for group in groups.values() if len(group) > 1]
