"""How well the closed-form scores rank architectures whose trained results are published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zerolm.architecture import Floats
from zerolm.comparison.results import Comparison, Section
from zerolm.comparison.section import section_of
from zerolm.comparison.subjects import Unusable, runs_of, subjects
from zerolm.groundtruth.reader import View
from zerolm.groundtruth.truth import GroundTruth
from zerolm.progress import Progress, silent
from zerolm.scores.capacity import ALPHAS
from zerolm.statistics import Bootstrap, enough, noise_ceiling
from zerolm.statistics.bootstrap import RESAMPLES

More = Callable[[GroundTruth, View], Mapping[str, Floats]]
"""Further scores (n,) of the architectures of a view, by name; higher is expected to be better."""


def bench(
    names: Sequence[str],
    *,
    data: str | None = None,
    metric: str | None = None,
    options: Mapping[str, Sequence[Any]] | None = None,
    draws: int = RESAMPLES,
    more: More = lambda *_: {},
    limit: int | None = None,
    view: str | None = None,
    unusable: Unusable | None = None,
    progress: Progress = silent,
) -> Comparison:
    """Return the agreement of every closed-form score with benchmarks, named or given as files.

    ``metric`` is the file's own unless named; intervals come from ``draws`` bootstrap resamples. ``options``
    lists the values of the scores' options, such as ``{"alpha": [0.5, 1.1]}``; a score that needs one which
    is not given is left out, and so is one that fails. ``more`` gives further scores by name; ``limit`` is
    the largest number of architectures of each benchmark, evenly spread over the file; ``view`` names the
    only one that does. Everything is read and checked before anything is scored: an unusable benchmark raises
    ``ValueError``, or is passed to ``unusable`` and omitted. Fewer than eight architectures have no
    intervals.
    """
    values = {"alpha": ALPHAS, **(options or {})}
    if len(values.get("init", ())) > 1:
        raise ValueError("a benchmark is read with one init at a time; give one")
    sections: list[Section] = []
    ready = list(subjects(names, data, metric, limit=limit, unusable=unusable))
    of = sum(view in (None, reading.name) for subject in ready for reading in subject.views)
    for subject in ready:
        ceiling = noise_ceiling(*runs_of(subject))
        bootstrap = Bootstrap(subject.result, enough(len(subject.result), draws))
        for reading in subject.views:
            if view in (None, reading.name):
                where = f", view {reading.name}" if reading.name else ""
                progress(f"scoring {subject.truth.name}{where}", len(sections), of)
                others = more(subject.truth, reading)
                sections.append(section_of(subject, reading, bootstrap, values, ceiling, others))
    return Comparison(sections)
