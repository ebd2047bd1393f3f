"""The tables of a comparison: written as CSV and JSON, and read again."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from zerolm.api.report import MAX_RESULT_BYTES, checked
from zerolm.architecture import Floats
from zerolm.calibration.alpha import GRID
from zerolm.comparison.results import AlphaPoint, Comparison, ScoreRow, Section
from zerolm.groundtruth.reader import quality
from zerolm.groundtruth.truth import GroundTruth, check, is_line
from zerolm.io.files import parse_json, read_text
from zerolm.report.rows import in_own_unit, key_of, name_of
from zerolm.statistics import Ceiling

FILES: Final = ("benchmarks.json", "rows.csv", "scores.csv")
COLUMNS: Final = ("benchmark", "view", "id", "result")
BUDGETS: Final = 19
"""Budgets under which regret is measured."""


def write_tables(comparison: Comparison, folder: Path) -> None:
    """Write ``FILES`` into a folder.

    ``rows.csv`` holds every row; ``scores.csv`` one line an architecture of a benchmark and view: its
    result in the unit of the metric, and the value of each score; ``benchmarks.json`` the benchmarks with
    this one result.
    """
    columns = [field.name for field in fields(ScoreRow)]
    _write_csv(folder / "rows.csv", columns, (row.to_json().values() for row in comparison.rows))
    names = list(dict.fromkeys(name_of(key_of(row)) for row in comparison.rows))
    _write_csv(folder / "scores.csv", [*COLUMNS, *names], _scored(comparison, names))
    benchmarks = [_benchmark(group) for group in by_truth(comparison)]
    (folder / "benchmarks.json").write_text(json.dumps(benchmarks), encoding="utf-8")


def by_truth(comparison: Comparison) -> list[list[Section]]:
    """Return the sections of each benchmark: its views."""
    return [list(group) for _, group in groupby(comparison.sections, lambda section: id(section.truth))]


def read_tables(document: Mapping[str, Any], folder: Path) -> Comparison:
    """Return the comparison that was written as ``result.json`` and ``FILES``; ``ValueError`` if none was."""
    told = checked(list[ToldSection], document["sections"])
    rows = iter(checked(list[ScoreRow], document["rows"]))
    names, lines = _read_csv(folder / "scores.csv")
    truths = _truths(parse_json(read_text(folder / "benchmarks.json", MAX_RESULT_BYTES)))
    sections = []
    for one, truth in zip(told, truths, strict=True):
        own = list(islice(rows, len(one.regret_by_budget)))
        scored = list(islice(lines, len(truth.architectures)))
        sections.append(one.section(truth, own, names, scored))
    note = document.get("note", "")
    if next(rows, None) or next(lines, None) or not isinstance(note, str) or not (is_line(note) or not note):
        raise ValueError("it has more rows or lines than sections, or its note is none")
    return Comparison(sections, note)


@dataclass(frozen=True)
class ToldSection:
    """The part of a section in ``result.json`` that cannot be computed again."""

    benchmark: str
    view: str | None
    metric: str
    ceiling: Ceiling | None
    alpha_curve: list[AlphaPoint]
    regret_by_budget: dict[str, list[float]]
    left_out: dict[str, str] = field(default_factory=dict)

    def section(
        self, truth: GroundTruth, rows: list[ScoreRow], names: Sequence[str], lines: list[list[str]]
    ) -> Section:
        """Return the section; ``ValueError`` where its rows or the ``lines`` of its scores are another's."""
        labels = list(self.regret_by_budget)
        heads = [[truth.name, self.view or "", entry.id] for entry in truth.architectures]
        same = all((r.benchmark, r.view, r.metric) == (truth.name, self.view, self.metric) for r in rows)
        if not same or labels != [row.label for row in rows] or [line[:3] for line in lines] != heads:
            raise ValueError(f"its rows or scores of {truth.name} are of something else")
        regrets = {label: np.array(values, float) for label, values in self.regret_by_budget.items()}
        if any(len(curve) != BUDGETS for curve in regrets.values()) or len(self.alpha_curve) != len(GRID):
            raise ValueError(f"a curve of {truth.name} has not as many points as it must")
        if not all(map(is_line, [*labels, *self.left_out, self.view or "-"])):
            raise ValueError(f"a name in {truth.name} is not one line")
        column = {name: place for place, name in enumerate(names, len(COLUMNS))}
        scores = {row.label: _column(lines, column[name_of(key_of(row))]) for row in rows}
        return Section(
            truth=truth,
            view=self.view,
            metric=self.metric,
            rows=rows,
            ceiling=self.ceiling,
            curve=self.alpha_curve,
            result=quality(truth, self.metric),
            scores=scores,
            regrets=regrets,
            left_out=self.left_out,
        )


def _benchmark(sections: Sequence[Section]) -> dict[str, Any]:
    """Return a benchmark with the one result that counted, and how many sections are of it."""
    truth, metric = sections[0].truth, sections[0].metric
    document = truth.model_dump()
    for entry in document["architectures"]:
        entry["results"] = {metric: entry["results"][metric]}
    return {"sections": len(sections), "benchmark": document}


def _truths(document: Any) -> Iterator[GroundTruth]:
    """Yield the benchmark of each section."""
    for entry in document:
        truth = check(entry["benchmark"])
        count = entry["sections"]
        if type(count) is not int or not 0 < count < 10:
            raise ValueError("a benchmark has no number of sections")
        for _ in range(count):
            yield truth


def _scored(comparison: Comparison, names: Sequence[str]) -> Iterator[list[Any]]:
    """Yield the lines of ``scores.csv``; a score that a benchmark lacks is empty."""
    for section in comparison.sections:
        labels = {name_of(key_of(row)): row.label for row in section.rows}
        columns = [
            section.scores[labels[name]].tolist() if name in labels else [None] * len(section.result)
            for name in names
        ]
        entries, results = section.truth.architectures, in_own_unit(section).tolist()
        for entry, result, *values in zip(entries, results, *columns, strict=True):
            yield [section.truth.name, section.view, entry.id, result, *values]


def _write_csv(path: Path, columns: Sequence[str], lines: Iterable[Iterable[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(lines)


def _read_csv(path: Path) -> tuple[list[str], Iterator[list[str]]]:
    """Return the names of the scores, and the lines."""
    try:
        head, *lines = csv.reader(read_text(path, MAX_RESULT_BYTES).splitlines(keepends=True))
    except csv.Error as error:
        raise ValueError(f"{path.name}: {error}") from None
    if tuple(head[: len(COLUMNS)]) != COLUMNS or any(len(line) != len(head) for line in lines):
        raise ValueError(f"{path.name} has other columns, or lines of another length")
    return head[len(COLUMNS) :], iter(lines)


def _column(lines: Sequence[Sequence[str]], place: int) -> Floats:
    values = [float(line[place]) for line in lines]
    if not all(map(math.isfinite, values)):
        raise ValueError("a score is not a finite number")
    return np.array(values)
