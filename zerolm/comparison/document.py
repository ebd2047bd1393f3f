"""Comparisons from the plain JSON that ``to_json`` gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import numpy as np
from pydantic import FiniteFloat

from zerolm.calibration.alpha import GRID
from zerolm.comparison.results import AlphaPoint, Comparison, ScoreRow, Section
from zerolm.groundtruth.reader import quality
from zerolm.groundtruth.truth import GroundTruth, check, is_line
from zerolm.io.plain import checked
from zerolm.statistics import Ceiling

LADDER: Final = 19
"""Budgets under which regret is measured."""
MOST_VIEWS: Final = 9
"""Sections that can be of one benchmark."""


def from_document(document: Mapping[str, Any]) -> Comparison:
    """Return the comparison of a document of ``to_json``; ``ValueError`` says what is wrong with it."""
    records = checked(list[SectionRecord], document["sections"])
    rows = iter(checked(list[ScoreRow], document["rows"]))
    truths: list[GroundTruth] = []
    for entry in document["benchmarks"]:
        truth, count = check(entry["benchmark"]), entry["sections"]
        if type(count) is not int or not 1 <= count <= MOST_VIEWS:
            raise ValueError("a benchmark has no number of sections")
        truths += [truth] * count
    sections = [
        record.section(truth, list(islice(rows, len(record.regret_by_budget))))
        for record, truth in zip(records, truths, strict=True)
    ]
    note = document.get("note", "")
    if next(rows, None) or not isinstance(note, str) or not (is_line(note) or not note):
        raise ValueError("it has more rows than sections, or its note is none")
    return Comparison(sections, note)


@dataclass(frozen=True)
class SectionRecord:
    """The part of a section in a document that cannot be computed again."""

    benchmark: str
    view: str | None
    metric: str
    ceiling: Ceiling | None
    alpha_curve: list[AlphaPoint]
    regret_by_budget: dict[str, list[FiniteFloat]]
    scores: dict[str, list[FiniteFloat]]
    left_out: dict[str, str] = field(default_factory=dict)

    def section(self, truth: GroundTruth, rows: list[ScoreRow]) -> Section:
        """Return the section; ``ValueError`` where its rows, curves or scores are another's."""
        labels = [row.label for row in rows]
        is_same = all((r.benchmark, r.view, r.metric) == (truth.name, self.view, self.metric) for r in rows)
        if not is_same or [list(self.regret_by_budget), list(self.scores)] != [labels, labels]:
            raise ValueError(f"its rows or scores of {truth.name} are of something else")
        if "body_params" not in labels or any(
            len(values) != len(truth.architectures) for values in self.scores.values()
        ):
            raise ValueError(f"the scores of {truth.name} are not those of its architectures")
        lengths = [len(self.alpha_curve), *map(len, self.regret_by_budget.values())]
        if lengths != [len(GRID), *[LADDER] * len(rows)]:
            raise ValueError(f"a curve of {truth.name} has not as many points as it must")
        if not all(map(is_line, [*labels, *self.left_out, self.view or "-"])):
            raise ValueError(f"a name in {truth.name} is not one line")
        return Section(
            truth=truth,
            view=self.view,
            metric=self.metric,
            rows=rows,
            ceiling=self.ceiling,
            curve=self.alpha_curve,
            result=quality(truth, self.metric),
            scores=_arrays(self.scores),
            regrets=_arrays(self.regret_by_budget),
            left_out=self.left_out,
        )


def _arrays(columns: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    return {label: np.array(values, np.float64) for label, values in columns.items()}
