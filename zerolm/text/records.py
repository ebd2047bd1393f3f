"""TextRecords of texts: JSON lines, JSON, Parquet and folders that ``Dataset.save_to_disk`` wrote.

JSON is parsed and Arrow read by pyarrow; nothing is unpickled and no code of a data set runs.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from zerolm.io.brief import one_line
from zerolm.io.files import parse_json, read_text
from zerolm.settings import shown
from zerolm.text.unpacked_files import form_of, lines, text_in

LINES: Final = (".jsonl", ".ndjson")
JSON: Final = ".json"
PARQUET: Final = ".parquet"
SAVED: Final = ("state.json", "dataset_info.json")
"""Files of a folder that ``Dataset.save_to_disk`` wrote."""
SPLITS: Final = "dataset_dict.json"
MAX_JSON: Final = 256 << 20
MAX_STATE: Final = 1 << 20
ROWS_AT_A_TIME: Final = 64
FIRST_LINES: Final = 2
"""Lines that show whether a file of text holds JSON."""

Row = dict[str, Any] | str
"""A record: its values by field, or the text itself."""


@dataclass(frozen=True)
class TextRecords:
    """The records of a file or folder: the names of their ``fields``, none where each is a string.

    ``rows(fields)`` yields where each record stands, and the record with at least these fields.
    """

    place: Path
    fields: tuple[str, ...]
    rows: Callable[[Sequence[str]], Iterator[tuple[str, Row]]]


def holds_records(place: Path) -> bool:
    """Return whether a file is named as one of records, or a folder holds a saved data set."""
    if place.is_dir():
        return (place / SPLITS).is_file() or all((place / name).is_file() for name in SAVED)
    return form_of(place) in (*LINES, JSON, PARQUET)


def records_of(place: Path) -> TextRecords:
    """Return the records of a file or a saved data set; ``ValueError``, in one line, where it has none.

    ``ModuleNotFoundError`` names the extra that reads Parquet and saved data sets.
    """
    if place.is_dir():
        return _of_saved(place)
    if form_of(place) == PARQUET:
        return _of_parquet(place)
    numbered = _json_rows(place) if form_of(place) == JSON else _line_rows(place)
    first = next(numbered, None)
    if first is None:
        raise ValueError(f"{place} is empty")
    fields = () if isinstance(first[1], str) else tuple(first[1])
    return TextRecords(place, fields, lambda _: chain([first], numbered))


def check_is_text(file: Path, beginning: str) -> None:
    """Raise ``ValueError`` where the lines of a file of text are JSON: its keys would be read as text."""
    content = beginning.removeprefix("\ufeff").lstrip()
    if content.startswith("{"):
        first = [line for line in content[: 1 << 20].split("\n", FIRST_LINES + 8) if line.strip()]
        are_json = all(_parses_to(dict, line) for line in first[:FIRST_LINES])
    else:
        are_json = content[:1] == "[" and content[1:].lstrip()[:1] in ("{", '"') and _parses_to(list, content)
    if are_json:
        kind = "JSON lines" if content.startswith("{") else "JSON"
        ending = LINES[0] if content.startswith("{") else JSON
        renamed = file.name.removesuffix(file.suffix) + ending
        raise ValueError(
            f"{str(file)!r} holds {kind}, not plain text: rename it to {renamed!r}, and the text of each "
            "record is read"
        )


def _parses_to(kind: type, text: str) -> bool:
    try:
        return isinstance(json.loads(text), kind)
    except (ValueError, RecursionError):
        return False


def _line_rows(file: Path) -> Iterator[tuple[str, Row]]:
    for number, line in lines(file):
        place = f"{str(file)!r}, line {number}"
        try:
            row = parse_json(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{place} is not JSON: {error}") from None
        yield place, _checked(place, row)


def _json_rows(file: Path) -> Iterator[tuple[str, Row]]:
    """Yield the items of an array, one object, or one record a line."""
    content = text_in(file, MAX_JSON)
    try:
        document = parse_json(content.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise ValueError(f"the text {str(file)!r} cannot be read: {error}") from None
        yield from _line_rows(file)
        return
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(file)!r} cannot be read: {error}") from None
    for number, row in enumerate(document if isinstance(document, list) else [document], 1):
        place = f"{str(file)!r}, record {number}"
        yield place, _checked(place, row)


def _checked(place: str, row: Any) -> Row:
    if not isinstance(row, dict | str):
        raise ValueError(f"{place} is {shown(row)}; an object with a field text, or a string, is needed")
    return row


def _arrow(name: str, place: Path) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{str(place)!r} is read with pyarrow: pip install 'zerolm[train]', or save it as .jsonl"
        ) from None


def _of_parquet(file: Path) -> TextRecords:
    parquet = _arrow("pyarrow.parquet", file)

    def rows(fields: Sequence[str]) -> Iterator[tuple[str, Row]]:
        with one_line(f"the text {str(file)!r}"), parquet.ParquetFile(file) as opened:
            yield from _numbered(file, opened.iter_batches(ROWS_AT_A_TIME, columns=list(fields)))

    if not file.is_file():
        raise ValueError(f"the text {str(file)!r} does not exist, or is not a regular file")
    with one_line(f"the text {str(file)!r}"), parquet.ParquetFile(file) as opened:
        return TextRecords(file, tuple(opened.schema_arrow.names), rows)


def _of_saved(folder: Path) -> TextRecords:
    if (folder / SPLITS).is_file():
        splits = _state(folder / SPLITS).get("splits")
        names = [name for name in splits if isinstance(name, str)] if isinstance(splits, list) else []
        raise ValueError(
            f"{str(folder)!r} holds the splits {', '.join(names) or 'of a data set'}: name one, "
            f"{str(folder / (names or ['train'])[0])!r}"
        )
    arrow = _arrow("pyarrow", folder)
    importlib.import_module("pyarrow.ipc")
    files = _arrow_files(folder)

    def tables(fields: Sequence[str]) -> Iterator[Any]:
        for file in files:
            with one_line(f"the text {str(file)!r}"), arrow.memory_map(str(file)) as opened:
                for batch in arrow.ipc.open_stream(opened):
                    table, starts = batch.select(list(fields)), range(0, len(batch), ROWS_AT_A_TIME)
                    yield from (table.slice(start, ROWS_AT_A_TIME) for start in starts)

    with one_line(f"the text {str(folder)!r}"), arrow.memory_map(str(files[0])) as opened:
        columns = tuple(arrow.ipc.open_stream(opened).schema.names)
        return TextRecords(folder, columns, lambda fields: _numbered(folder, tables(fields)))


def _numbered(place: Path, tables: Iterable[Any]) -> Iterator[tuple[str, Row]]:
    """Yield the rows of tables of pyarrow, each with its place: its number from 1."""
    rows = (row for table in tables for row in table.to_pylist())
    yield from ((f"{str(place)!r}, row {number}", row) for number, row in enumerate(rows, 1))


def _arrow_files(folder: Path) -> list[Path]:
    """Return the files of a saved data set, which lie in its folder."""
    state = _state(folder / SAVED[0])
    entries = state.get("_data_files")
    if state.get("_indices_files") or not isinstance(entries, list) or not entries:
        raise ValueError(f"{str(folder)!r} is no data set that this version reads: save it as .jsonl")
    files = []
    for entry in entries:
        name = entry.get("filename") if isinstance(entry, dict) else None
        if not isinstance(name, str) or Path(name).name != name or not (folder / name).is_file():
            raise ValueError(f"{str(folder)!r} lacks its file {shown(name)}: save the data set again")
        files.append(folder / name)
    return files


def _state(file: Path) -> dict[str, Any]:
    try:
        document = parse_json(read_text(file, MAX_STATE))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{str(file)!r} cannot be read: {error}") from None
    return document if isinstance(document, dict) else {}
