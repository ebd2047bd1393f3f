"""Sentences of a text: one a line, or pairs with scores in a table (``.csv``, ``.tsv`` or ``.jsonl``)."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zerolm.io.files import parse_json
from zerolm.settings import shown
from zerolm.text.documents import read_file
from zerolm.text.unpacked_files import form_of

LONGEST_FIELD: Final = 1 << 17
"""Characters of a field of a table, at most."""
COLUMNS: Final = ("sentence1", "sentence2", "score")
TABLES: Final[dict[str, Mapping[str, Any]]] = {
    ".csv": {"delimiter": ",", "strict": True},
    ".tsv": {"delimiter": "\t", "quoting": csv.QUOTE_NONE},
}
LINES: Final = ".jsonl"
LEAST_PAIRS: Final = 3


@dataclass(frozen=True)
class SentencePairs:
    """The sentences of pairs, first and second, and the ``scores`` that people gave them, higher if alike."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    scores: tuple[float, ...]

    @property
    def sentences(self) -> list[str]:
        """All sentences, each once, in their order."""
        return list(
            dict.fromkeys(part for pair in zip(self.first, self.second, strict=True) for part in pair)
        )


def read_pairs(file: Path) -> SentencePairs:
    """Return the pairs of a file; ``ValueError`` names the line and what is wrong with it."""
    rows = [_pair(place, row) for place, row in table_rows(str(file), read_file(file).content)]
    if len(rows) < LEAST_PAIRS:
        raise ValueError(f"the pairs {str(file)!r} are {len(rows)}; {LEAST_PAIRS} are the least")
    first, second, scores = zip(*rows, strict=True)
    if len(set(scores)) == 1:
        raise ValueError(f"the pairs {str(file)!r} all have the score {scores[0]:g}: nothing orders them")
    return SentencePairs(first, second, scores)


def sentences_of(name: str, content: str) -> list[str]:
    """Return the sentences of a text: those of the pairs of a table, by its name; else one a line."""
    if form_of(name) in TABLES:
        rows = [row for _, row in table_rows(name, content)]
        if rows and set(COLUMNS[:2]) <= rows[0].keys():
            values = (row.get(column) for row in rows for column in COLUMNS[:2])
            return [value.strip() for value in values if isinstance(value, str) and value.strip()]
    return [line.strip() for line in content.splitlines() if line.strip()]


def table_rows(name: str, content: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield where each row of a table stands, and its values by column; ``name`` is that of its file."""
    kind = Path(name).suffix.lower()
    if kind not in (*TABLES, LINES):
        raise ValueError(f"{name!r} is no table: {', '.join((*TABLES, LINES))} can be")
    try:
        if kind == LINES:
            for number, line in enumerate(content.splitlines(), 1):
                if line.strip():
                    row = parse_json(line)
                    yield f"{name!r}, line {number}", row if isinstance(row, dict) else {}
            return
        csv.field_size_limit(LONGEST_FIELD)  # other readers of this process may have changed it
        reader = csv.DictReader(io.StringIO(content.removeprefix("\ufeff"), newline=""), **TABLES[kind])
        for row in reader:
            yield f"{name!r}, line {reader.line_num}", row
    except (csv.Error, ValueError, RecursionError) as error:
        raise ValueError(f"the table {name!r} cannot be read: {error}") from None


def _pair(place: str, row: Mapping[str, Any]) -> tuple[str, str, float]:
    for name in COLUMNS:
        if name not in row:
            there = ", ".join(str(each)[:40] for each in row) or "none"
            raise ValueError(f"{place} has no {name}; its columns are {there}")
    first, second, score = (row[name] for name in COLUMNS)
    for name, value in ((COLUMNS[0], first), (COLUMNS[1], second)):
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{place} has {name} {shown(value)}; columns are {', '.join(COLUMNS)}")
    try:
        number = math.nan if isinstance(score, bool) or score is None else float(score)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{place} has {COLUMNS[2]} {shown(score)}; a number can be")
    return str(first).strip(), str(second).strip(), number
