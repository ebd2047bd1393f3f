"""Tables of a comparison as CSV; and folders of earlier versions, which kept a part of the result there."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any, Final

from zerolm.comparison.results import Comparison, ScoreRow
from zerolm.comparison.standings import in_own_unit, key_of, name_of
from zerolm.io.files import parse_json, read_text
from zerolm.verbs.report import RESULT_BYTES

FILES: Final = ("rows.csv", "scores.csv")
HEADS: Final = ("benchmark", "view", "id", "result")
"""The first columns of ``scores.csv``."""


def write_tables(comparison: Comparison, folder: Path) -> None:
    """Write ``FILES`` into a folder.

    ``rows.csv`` holds every row; ``scores.csv`` one line an architecture of a benchmark and view: its
    result in the unit of the metric, and the value of each score.
    """
    columns = [field.name for field in fields(ScoreRow)]
    _write_csv(folder / "rows.csv", columns, (row.to_json().values() for row in comparison.rows))
    names = list(dict.fromkeys(name_of(key_of(row)) for row in comparison.rows))
    _write_csv(folder / "scores.csv", [*HEADS, *names], _scored(comparison, names))


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


def completed(document: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return a document of a comparison with its benchmarks and scores.

    Earlier versions wrote them beside it, as ``benchmarks.json`` and ``scores.csv``.
    """
    if "benchmarks" in document:
        return document
    benchmarks = parse_json(read_text(folder / "benchmarks.json", RESULT_BYTES))
    counts = [len(one["benchmark"]["architectures"]) for one in benchmarks for _ in range(one["sections"])]
    names, lines = _read_csv(folder / "scores.csv")
    rows, sections = iter(document["rows"]), []
    for section, count in zip(document["sections"], counts, strict=True):
        scored = list(islice(lines, count))
        labels = list(section["regret_by_budget"])
        keys = {
            label: name_of((row["score"], row["alpha"])) for label, row in zip(labels, rows, strict=False)
        }
        places = {label: len(HEADS) + names.index(key) for label, key in keys.items()}
        scores = {label: [float(line[place]) for line in scored] for label, place in places.items()}
        sections.append({**section, "scores": scores})
    return {**document, "sections": sections, "benchmarks": benchmarks}


def _read_csv(path: Path) -> tuple[list[str], Iterator[list[str]]]:
    """Return the names of the scores, and the lines."""
    try:
        head, *lines = csv.reader(read_text(path, RESULT_BYTES).splitlines(keepends=True))
    except csv.Error as error:
        raise ValueError(f"{path.name}: {error}") from None
    if tuple(head[: len(HEADS)]) != HEADS or any(len(line) != len(head) for line in lines):
        raise ValueError(f"{path.name} has other columns, or lines of another length")
    return head[len(HEADS) :], iter(lines)
