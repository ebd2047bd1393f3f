"""Rows of a data set: a CSV file with a heading, or a data set of the hub."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from zerolm.groundtruth.csv import csv_rows
from zerolm.io.files import read_text
from zerolm.text.documents import HUB, check_on_hub

MAX_BYTES: Final = 1 << 30
Row = Mapping[str, Any]


def read_rows(source: str, columns: Sequence[str], optional: Sequence[str] = ()) -> list[Row]:
    """Return the rows of a source with these columns, and the optional ones where it has them.

    Cells of a CSV file are text; names of classes stand in for their numbers in a data set that has names.
    ``ValueError``, in one line, for a source that cannot be read, or lacks a column.
    """
    place = Path(source)
    try:
        if place.exists():
            rows = _of_file(place)
        elif HUB.fullmatch(source):
            rows = _of_hub(source)
        else:
            raise ValueError("it does not exist; a CSV file or owner/name:config:split of the hub does")
        lacking = [column for column in columns if column not in rows[0]]
        if lacking:
            raise ValueError(f"it has no column {lacking[0]!r}; there are {', '.join(rows[0])}")
    except ModuleNotFoundError:
        raise
    except Exception as error:  # the library raises what it will
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ValueError(f"the data set {source!r} cannot be read: {reason}") from None
    return [{name: row[name] for name in (*columns, *optional) if name in row} for row in rows]


def _of_file(path: Path) -> list[Row]:
    return [row for _, row in csv_rows(read_text(path, MAX_BYTES), strip=False)]


def _of_hub(source: str) -> list[Row]:
    match = HUB.fullmatch(source)
    assert match is not None
    try:
        import datasets
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{source!r} is no file, and data sets of the hub need datasets: pip install 'zerolm[train]'"
        ) from None
    check_on_hub(match["name"])
    datasets.disable_progress_bars()
    loaded: Any = datasets.load_dataset(match["name"], match["config"], split=match["split"] or "train")
    return list(named(loaded))


def named(loaded: Any) -> Iterator[Row]:
    """Yield the rows of a data set; its classes by their names."""
    names = {
        column: feature.names for column, feature in loaded.features.items() if hasattr(feature, "names")
    }
    for row in loaded:
        classes = {
            column: names[column][row[column]] for column in names if row[column] in range(len(names[column]))
        }
        yield {**row, **classes}
    if not len(loaded):
        raise ValueError("it has no rows")
