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
metrics whose names say it (``known_direction``). A file with several results has no metric of its own.
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
TEXTS: Final = ("id", "space")
OBJECTS: Final = ("settings", "architecture")
"""Columns that hold texts, and JSON objects."""
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
    if "space" not in columns:
        raise ValueError(f"there is no column 'space'; there are {', '.join(columns)}")
    choices = {column: column.removeprefix(CHOICE) for column in columns if column.startswith(CHOICE)}
    if ("architecture" in columns) == bool(choices):
        raise ValueError(
            f"the choices are in a column 'architecture' or in columns '{CHOICE}NAME', one of the two; "
            f"there are {', '.join(columns)}"
        )
    metrics = _metrics(columns)
    read = [_values(row) for row in rows]
    space, settings = read[0]["space"], read[0].get("settings")
    check_known(f"{_place(rows[0][0], 'space')}:", space, space_names())
    first: dict[str, int] = {}
    architectures = []
    for (number, _), values in zip(rows, read, strict=True):
        key = values.get("id", f"line {number}")
        if key in first:
            raise ValueError(f"{_place(number, 'id')}: {key!r} is the id of line {first[key]} too")
        if values["space"] != space:
            raise ValueError(f"{_place(number, 'space')}: one file holds one space, here {space!r}")
        if values.get("settings") != settings:
            raise ValueError(f"{_place(number, 'settings')}: the settings must be the same in every row")
        first[key] = number
        chosen = {choice: values[column] for column, choice in choices.items()}
        results = {metric: values[column] for column, metric in metrics.items()}
        architectures.append(
            {"id": key, "architecture": chosen or values["architecture"], "results": results}
        )
    marks = {metric: column.partition(":")[2] for column, metric in metrics.items()}
    return {
        "name": name,
        "space": space,
        "settings": settings,
        "metric": None,
        "higher_is_better": None,
        "directions": {metric: direction for metric, direction in marks.items() if direction},
        "architectures": architectures,
    }


def _metrics(columns: Sequence[str]) -> dict[str, str]:
    """The columns that are results, with the names of the metrics."""
    metrics: dict[str, str] = {}
    for column in columns:
        if column in (*TEXTS, *OBJECTS) or column.startswith(CHOICE):
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


def _values(row: Row) -> dict[str, Any]:
    """Return the content of a row by column; ``ValueError`` names the line and the column."""
    number, cells = row
    values = {}
    for column, cell in cells.items():
        try:
            values[column] = _value(column, cell)
        except ValueError as error:
            raise ValueError(f"{_place(number, column)}: {error}") from None
    return values


def _value(column: str, cell: str) -> Any:
    """Return the content of a cell: a text, JSON, or a number."""
    if not cell:
        raise ValueError("the value is missing")
    if column in TEXTS:
        return cell
    shown = repr(cell[:40])
    if column in OBJECTS or column.startswith(CHOICE):
        try:
            value = parse_json(cell)
        except (json.JSONDecodeError, RecursionError):
            raise ValueError(f"{shown} is not JSON") from None
        if column in OBJECTS and not isinstance(value, dict):
            raise ValueError(f"{shown} is no JSON object")
        return value
    try:
        result = float(cell.replace("_", " "))  # Python's digit separator is nobody else's
    except ValueError:
        raise ValueError(f"{shown} is not a number") from None
    if not math.isfinite(result):
        raise ValueError(f"{shown} is not a finite number")
    return result


def _place(number: int, column: str) -> str:
    return f"line {number}, column {column!r}"
