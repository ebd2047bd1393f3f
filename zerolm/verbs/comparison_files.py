"""Tables of a comparison as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from zerolm.comparison.results import Comparison, ScoreRow
from zerolm.comparison.standings import in_own_unit, key_of, name_of

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
