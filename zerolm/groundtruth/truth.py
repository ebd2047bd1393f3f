"""Published results as objects: architectures with what they reached when they were trained."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, ValidationError
from pydantic_core import PydanticCustomError

from zerolm.io.brief import brief
from zerolm.io.plain import first_problem

MAX_BENCHMARK_BYTES: Final = 256 << 20
_LINE: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,200}")
NO_LINE: Final = "must be one line of at most 200 characters"
LOWER: Final = {
    "loss", "ppl", "perplexity", "bpb", "bpc", "bpw", "nll", "entropy", "mse", "rmse", "mae", "wer", "cer",
    "eer", "err", "error", "errors", "fid",
}  # fmt: skip
"""Words of metrics that are better when they are lower."""
HIGHER: Final = {
    "accuracy", "acc", "f1", "bleu", "sacrebleu", "chrf", "rouge", "meteor", "auc", "auroc", "auprc", "mrr",
    "ndcg", "mcc", "pearson", "spearman", "mmlu", "hellaswag", "piqa", "boolq", "glue", "superglue",
    "cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst", "sts", "stsb", "wnli",
}  # fmt: skip
"""Words of metrics that are better when they are higher; GLUE's tasks are accuracies and correlations."""
TURNING: Final = {
    "neg", "negative", "minus", "inverse", "inv", "drop", "gap", "delta", "diff", "difference", "change",
    "reduction", "improvement", "gain", "increase", "decrease", "std", "stderr", "stdev", "var", "variance",
}  # fmt: skip
"""Words that may turn a metric round, or make a spread of it: then the name says nothing."""


def known_direction(metric: str) -> bool | None:
    """Return whether higher is better in a metric, from the words of its name; None where they do not say.

    ``val_bpb``, ``testAcc`` and ``ppl (avg)`` are known by one word; two that disagree say nothing.
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", metric).lower()
    words = set(re.findall(r"[a-z]+", spaced)) | set(re.findall(r"[a-z]+[0-9]+", spaced))
    lower, higher = bool(words & LOWER), bool(words & HIGHER)
    if lower == higher or words & TURNING or re.match(r"\s*(-|1\s*-)", metric):
        return None
    return higher


def is_line(text: str) -> bool:
    """Whether a text can be printed as it is: not empty, not long, and without control characters."""
    return _LINE.fullmatch(text) is not None


def _line(text: str) -> str:
    if not is_line(text):
        raise PydanticCustomError("line", NO_LINE)
    return text


Line = Annotated[str, AfterValidator(_line)]
"""What is printed as it is: names, ids, metrics."""


class TrainedArchitecture(BaseModel):
    """One trained architecture.

    ``repeats`` are results of further runs of it, with other seeds; those of one ``group`` are of equal size.
    """

    model_config = ConfigDict(extra="ignore", strict=True)
    id: Line
    architecture: dict[str, Any]
    results: dict[Line, float]
    repeats: dict[Line, list[FiniteFloat]] = {}
    group: Line | None = None

    def __repr__(self) -> str:
        results = ", ".join(f"{name} {result:g}" for name, result in self.results.items())
        return brief(self, self.id, results)

    __str__ = __repr__


class GroundTruth(BaseModel):
    """A benchmark file: architectures of one space with their results.

    ``metric`` is its own, None where it has none; ``higher_is_better`` is that metric's, ``directions`` those
    of any result. ``settings`` are those of the space, if the file fixes them; ``fields`` says what its
    entries are.
    """

    model_config = ConfigDict(extra="ignore", strict=True)
    name: Line
    space: Line
    metric: Line | None
    higher_is_better: bool | None
    directions: dict[str, Literal["higher", "lower"]] = {}
    settings: dict[str, Any] | None = None
    task: str = ""
    source: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    count: int | None = None
    architectures: Annotated[list[TrainedArchitecture], Field(min_length=2)]

    def __repr__(self) -> str:
        count = f"{len(self.architectures)} architectures of {self.space}"
        return brief(self, self.name, count, f"metric {self.metric}")

    __str__ = __repr__

    @property
    def shared(self) -> dict[str, Any]:
        """Return the values that all networks share: ``constant`` in ``fields``."""
        constant = self.fields.get("constant")
        return constant if isinstance(constant, dict) else {}

    def metric_of(self, metric: str | None) -> str:
        """Return the metric that is meant: the one named, else the file's own, else its only one."""
        metrics = list(dict.fromkeys(name for entry in self.architectures for name in entry.results))
        metric = metric or self.metric or (metrics[0] if len(metrics) == 1 else None)
        if metric is None:
            raise ValueError(
                f"benchmark {self.name} has {len(metrics)} results and none is named: give --metric, one of "
                f"{', '.join(metrics)}"
            )
        return metric

    def is_higher_better(self, metric: str) -> bool:
        """Return the direction of a metric; ``ValueError`` where neither the file nor its name says it."""
        if metric in self.directions:
            return self.directions[metric] == "higher"
        higher = known_direction(metric)
        if metric == self.metric and self.higher_is_better is not None:
            higher = self.higher_is_better
        if higher is None:
            raise ValueError(
                f"benchmark {self.name}: is higher or lower {metric!r} better? name the column "
                f"{metric}:higher or {metric}:lower, or in JSON give higher_is_better or directions"
            )
        return higher


def check(document: Any) -> GroundTruth:
    """The ground truth that a document in the common format holds; ``ValueError`` says what is wrong."""
    try:
        truth = GroundTruth.model_validate(document)
    except ValidationError as error:
        raise ValueError(first_problem(error, "the file", document)) from None
    if len({entry.id for entry in truth.architectures}) < len(truth.architectures):
        raise ValueError("some architectures have the same id")
    if truth.count is not None and truth.count != len(truth.architectures):
        raise ValueError(
            f"it promises {truth.count} architectures, but has {len(truth.architectures)} of them"
        )
    return truth


def thinned(truth: GroundTruth, count: int | None) -> GroundTruth:
    """At most ``count`` of the architectures, evenly spread over the file; all of them for None."""
    total = len(truth.architectures)
    if count is None or count >= total:
        return truth
    if count < 2:
        raise ValueError(f"benchmark {truth.name}: {count} of {total} architectures cannot be ranked; take 2")
    few = [truth.architectures[place * total // count] for place in range(count)]
    return truth.model_copy(update={"architectures": few, "count": count})
