"""Trained architectures of one's own as a CSV file, one row each.

======================  =================================================================================
column                  meaning
======================  =================================================================================
``space``               the search space, the same in every row
``architecture``        the choices as a JSON object; or, instead, one column for each choice:
``architecture.NAME``   the choice ``NAME`` as JSON: ``128``, ``"[2, 2]"``
``id``                  optional: a name, else ``line N``
``settings``            optional: settings of the space as a JSON object, the same in every row
every other             a result: a finite number in every row
======================  =================================================================================

Whether higher is better is said in the heading, ``bits:lower`` or ``quality:higher``; it need not be said of
metrics whose names say it (``directions``). A file with several results has no metric of its own.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from zerolm.groundtruth.truth import NO_LINE, GroundTruth, check, is_line
from zerolm.io.files import parse_json, read_text
from zerolm.settings import check_known
from zerolm.spaces import space_names

MAX_CSV_BYTES: Final = 64 << 20
MAX_CSV_COLUMNS: Final = 1000
CHOICE: Final = "architecture."
OTHER_MARKS: Final = ";\t|"
"""Marks between columns that other programs write."""

Row = tuple[int, dict[str, str]]
"""A line number of the file and its cells by column."""


def read_csv(path: Path) -> GroundTruth:
    """The architectures and results of a CSV file; ``ValueError`` names line and column of what is wrong."""
    try:
        text = read_text(path, MAX_CSV_BYTES)
    except (OSError, ValueError) as error:
        raise ValueError(f"benchmark file {str(path)!r} cannot be read: {error}") from None
    try:
        return check(_document(path.stem, csv_rows(text)))
    except ValueError as error:
        raise ValueError(f"benchmark file {str(path)!r}: {error}") from None


def csv_rows(text: str) -> list[Row]:
    """Return the rows of a CSV text below its heading; ``ValueError`` names the line of what is wrong."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        lines = [(reader.line_num, [cell.strip() for cell in line]) for line in reader if any(line)]
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: {error}") from None
    if not lines:
        raise ValueError("it is empty")
    (_, columns), *rest = lines
    other = next((mark for mark in OTHER_MARKS if mark in columns[0]), None)
    if len(columns) == 1 and other:
        raise ValueError(f"its columns are separated by {other!r}; separate them by commas")
    if len(columns) > MAX_CSV_COLUMNS:
        raise ValueError(f"it has {len(columns)} columns; at most {MAX_CSV_COLUMNS} are read")
    for column in columns:
        if not column or columns.count(column) > 1:
            raise ValueError(f"column {column!r} is named twice" if column else "a column has no name")
        if not is_line(column):
            raise ValueError(f"the name of column {column[:40]!r} {NO_LINE}")
    for number, cells in rest:
        if len(cells) != len(columns):
            raise ValueError(f"line {number} has {len(cells)} fields, but the heading has {len(columns)}")
    if not rest:
        raise ValueError("it has a heading, but no rows")
    return [(number, dict(zip(columns, cells, strict=True))) for number, cells in rest]


def _document(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    columns = list(rows[0][1])
    _check_architecture_columns(columns)
    metrics = _metrics(columns)
    ids = _ids(rows)
    marks = {metric: column.partition(":")[2] for column, metric in metrics.items()}
    return {
        "name": name,
        "space": _space(rows),
        "settings": _settings(rows) if "settings" in columns else None,
        "metric": None,
        "higher_is_better": None,
        "directions": {metric: direction for metric, direction in marks.items() if direction},
        "architectures": [
            {
                "id": key,
                "architecture": _architecture(row),
                "results": {metric: _number(row, column) for column, metric in metrics.items()},
            }
            for key, row in zip(ids, rows, strict=True)
        ],
    }


def _check_architecture_columns(columns: Sequence[str]) -> None:
    if "space" not in columns:
        raise ValueError(f"there is no column 'space'; there are {', '.join(columns)}")
    choices = [column for column in columns if column.startswith(CHOICE)]
    if ("architecture" in columns) == bool(choices):
        raise ValueError(
            f"the choices are in a column 'architecture' or in columns '{CHOICE}NAME', one of the two; "
            f"there are {', '.join(columns)}"
        )


def _metrics(columns: Sequence[str]) -> dict[str, str]:
    """The columns that are results, with the names of the metrics."""
    metrics: dict[str, str] = {}
    for column in columns:
        if column in ("id", "space", "settings", "architecture") or column.startswith(CHOICE):
            continue
        metric, mark, direction = column.partition(":")
        if mark and (not metric or direction not in ("higher", "lower")):
            raise ValueError(f"column {column!r}: a result is headed NAME, NAME:higher or NAME:lower")
        if metric in metrics.values():
            raise ValueError(f"result {metric!r} has two columns")
        metrics[column] = metric
    if not metrics:
        raise ValueError(f"there is no column with a result; there are {', '.join(columns)}")
    return metrics


def _ids(rows: Sequence[Row]) -> list[str]:
    first: dict[str, int] = {}
    for row in rows:
        key = _cell(row, "id") if "id" in row[1] else f"line {row[0]}"
        if key in first:
            raise ValueError(f"{_place(row, 'id')}: {key!r} is the id of line {first[key]} too")
        first[key] = row[0]
    return list(first)


def _space(rows: Sequence[Row]) -> str:
    name = _cell(rows[0], "space")
    check_known(f"{_place(rows[0], 'space')}:", name, space_names())
    for row in rows:
        if _cell(row, "space") != name:
            raise ValueError(f"{_place(row, 'space')}: one file holds one space, here {name!r}")
    return name


def _settings(rows: Sequence[Row]) -> dict[str, Any]:
    settings = _object(rows[0], "settings")
    for row in rows:
        if _object(row, "settings") != settings:
            raise ValueError(f"{_place(row, 'settings')}: the settings must be the same in every row")
    return settings


def _architecture(row: Row) -> dict[str, Any]:
    if "architecture" in row[1]:
        return _object(row, "architecture")
    return {column[len(CHOICE) :]: _json(row, column) for column in row[1] if column.startswith(CHOICE)}


def _object(row: Row, column: str) -> dict[str, Any]:
    value = _json(row, column)
    if not isinstance(value, dict):
        raise ValueError(f"{_place(row, column)}: {row[1][column][:40]!r} is no JSON object")
    return value


def _json(row: Row, column: str) -> Any:
    cell = _cell(row, column)
    try:
        return parse_json(cell)
    except (json.JSONDecodeError, RecursionError):
        raise ValueError(f"{_place(row, column)}: {cell[:40]!r} is not JSON") from None
    except ValueError as error:
        raise ValueError(f"{_place(row, column)}: {error}") from None


def _number(row: Row, column: str) -> float:
    cell = _cell(row, column)
    try:
        value = float(cell.replace("_", " "))  # Python's digit separator is nobody else's
    except ValueError:
        raise ValueError(f"{_place(row, column)}: {cell[:40]!r} is not a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{_place(row, column)}: {cell[:40]!r} is not a finite number")
    return value


def _cell(row: Row, column: str) -> str:
    if not row[1][column]:
        raise ValueError(f"{_place(row, column)}: the value is missing")
    return row[1][column]


def _place(row: Row, column: str) -> str:
    return f"line {row[0]}, column {column!r}"
