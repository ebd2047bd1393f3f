"""The benchmarks of a comparison, read and checked before anything is scored."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.groundtruth.reader import View, chosen, locate, ranked, read, views
from zerolm.groundtruth.truth import GroundTruth, thinned

Unusable = Callable[[ValueError], None]
"""Called with the reason why a benchmark is omitted."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A benchmark by one ``metric``: its ``result`` (n,), higher is better, and its readings."""

    truth: GroundTruth
    metric: str
    result: Floats
    views: list[View]

    @property
    def groups(self) -> list[str | None] | None:
        """Return the group of equal size that each architecture is of; None where the file names none."""
        groups = [entry.group for entry in self.truth.architectures]
        return groups if any(group is not None for group in groups) else None


def subjects(
    names: Sequence[str],
    data: str | None,
    metric: str | None,
    *,
    limit: int | None = None,
    unusable: Unusable | None = None,
) -> list[Subject]:
    """Return the benchmarks named, or given as files, each once.

    ``metric`` is the file's own unless named; at most ``limit`` architectures are used. A benchmark that
    cannot be compared raises ``ValueError`` or, where ``unusable`` is given, is passed to it and omitted. It
    is an error if all are.
    """
    ready: list[Subject] = []
    errors: list[ValueError] = []
    for name in dict.fromkeys(chosen(names, data)):
        try:
            truth = thinned(read(locate(name, data)), limit)
            named_metric = truth.metric_of(metric)
            ready.append(Subject(truth, named_metric, ranked(truth, named_metric), views(truth)))
        except ValueError as error:
            if unusable is None:
                raise
            errors.append(error)
    if not ready:
        raise ValueError(f"none of {len(errors)} benchmarks can be used; the first: {errors[0]}")
    for problem in errors:
        if unusable is not None:
            unusable(problem)
    return ready


def runs_of(subject: Subject) -> tuple[Floats, Ints]:
    """Return the results (m,) of all runs, higher is better, and a label (m,) of the network of each.

    Architectures that were trained as the same network share a label. Where a benchmark has a view of what
    was trained, that one says so: its layers in order and their heads, whatever else a configuration names.
    """
    view = next((view for view in subject.views if view.name == "trained"), subject.views[0])
    sign = 1.0 if subject.truth.is_higher_better(subject.metric) else -1.0
    numbers: dict[Hashable, int] = {}
    labels, further, results = list[int](), list[int](), list[float]()
    for architecture, entry in zip(view.architectures, subject.truth.architectures, strict=True):
        identity: Hashable = json.dumps(architecture.choices, sort_keys=True)
        if view.name == "trained":
            heads = (layer["num_operation_heads"] for layer in architecture.choices["encoder_layers"])
            identity = architecture.layers, tuple(heads)
        labels.append(numbers.setdefault(identity, len(numbers)))
        repeats = entry.repeats.get(subject.metric, ())
        results += [sign * value for value in repeats]
        further += labels[-1:] * len(repeats)
    return np.append(subject.result, results), np.array(labels + further, np.int64)
