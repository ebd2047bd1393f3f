"""Texts with their classes, as they are and as an attack left them: tables that others wrote.

Attacked texts are in the columns that TextAttack writes (``--log-to-csv``, arXiv 2005.05909).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zerolm.settings import shown
from zerolm.text.documents import read_file

CLEAN: Final = ("text", "label")
ATTACKED: Final = ("original_text", "perturbed_text", "ground_truth_output", "result_type")
OUTCOMES: Final = ("Successful", "Failed", "Skipped", "Maximized")
SKIPPED: Final = "Skipped"
LINE_END: Final = "<SPLIT>"
"""What stands for the end of a line in a text of TextAttack."""
MARKED: Final = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
"""A word that the attack changed, as TextAttack marks it in a file."""
LONGEST_FIELD: Final = 1 << 20
MOST_ROWS: Final = 1 << 20


@dataclass(frozen=True)
class ClassifiedTexts:
    """Texts, the number of the class of each, and the SHA-256 of their file."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    sha256: str


@dataclass(frozen=True)
class AttackedTexts(ClassifiedTexts):
    """Texts as they were, and each as the attack left it.

    ``attacked`` is False of rows that the attack skipped, for its victim was wrong before: of these both
    texts are one.
    """

    perturbed: tuple[str, ...]
    attacked: tuple[bool, ...]


def read_classified(file: Path, classes: Sequence[str]) -> ClassifiedTexts:
    """Return the rows of a table with the columns ``text`` and ``label``.

    A label is the name or the number of one of the ``classes``. ``ValueError`` names the line and what is
    wrong with it.
    """
    content = read_file(file)
    rows = [
        (_text(place, row, "text"), _label(place, row, "label", classes))
        for place, row in _rows(file, content.content, CLEAN)
    ]
    texts, labels = zip(*rows, strict=True)
    return ClassifiedTexts(texts, labels, content.sha256)


def read_attacked(file: Path, classes: Sequence[str]) -> AttackedTexts:
    """Return the rows of a table of TextAttack, without its marks around words.

    ``ValueError`` names the line and what is wrong with it, or says that all of its rows were skipped.
    """
    content = read_file(file)
    rows = [_attacked(place, row, classes) for place, row in _rows(file, content.content, ATTACKED)]
    texts, perturbed, labels, attacked = zip(*rows, strict=True)
    if not any(attacked):
        raise ValueError(
            f"all {len(rows)} attacked rows of {str(file)!r} were skipped: no text of it was attacked"
        )
    return AttackedTexts(texts, labels, content.sha256, perturbed, attacked)


def _attacked(
    place: str, row: Mapping[str, str | None], classes: Sequence[str]
) -> tuple[str, str, int, bool]:
    outcome = row["result_type"]
    if outcome not in OUTCOMES:
        raise ValueError(f"{place} has result_type {shown(outcome)}; {', '.join(OUTCOMES)} can be")
    texts = (MARKED.sub(r"\1", _text(place, row, name)) for name in ATTACKED[:2])
    before, after = (text.replace(LINE_END, "\n") for text in texts)
    if outcome == SKIPPED and before != after:
        raise ValueError(f"{place} was skipped, yet its perturbed_text is not its original_text")
    return before, after, _label(place, row, "ground_truth_output", classes), outcome != SKIPPED


def _text(place: str, row: Mapping[str, str | None], column: str) -> str:
    text = row[column]
    if text is None or not text.strip():
        raise ValueError(f"{place} has {column} {shown(text)}; a text can be")
    return text


def _label(place: str, row: Mapping[str, str | None], column: str, classes: Sequence[str]) -> int:
    text = (row[column] or "").strip()
    if text in classes:
        return list(classes).index(text)
    if re.fullmatch(r"[0-9]{1,9}(\.0*)?", text) and int(float(text)) < len(classes):
        return int(float(text))
    names = ", ".join(classes[:8]) + (" ..." if len(classes) > 8 else "")
    raise ValueError(
        f"{place} has {column} {shown(text)}; the head has {len(classes)} classes, 0 to "
        f"{len(classes) - 1}: {names}"
    )


def _rows(file: Path, content: str, columns: Sequence[str]) -> Iterator[tuple[str, Mapping[str, str | None]]]:
    """Yield where each row of a table stands, and its values by column; at least one row."""
    reader = csv.DictReader(io.StringIO(content.removeprefix("\ufeff"), newline=""), strict=True)
    count, before = 0, csv.field_size_limit(LONGEST_FIELD)
    try:
        names = reader.fieldnames or []
        lacking = [column for column in columns if column not in names]
        if lacking:
            raise ValueError(
                f"{str(file)!r} lacks the column{'s' * (len(lacking) > 1)} {', '.join(lacking)}; it has "
                f"{', '.join(map(shown, names))}"
            )
        for row in reader:
            count += 1
            if count > MOST_ROWS:
                raise ValueError(f"{str(file)!r} has more than {MOST_ROWS} rows; a part of it does")
            yield f"{str(file)!r}, line {reader.line_num}", row
    except csv.Error as error:
        raise ValueError(f"{str(file)!r}, line {reader.line_num} cannot be read: {error}") from None
    finally:
        csv.field_size_limit(before)
    if not count:
        raise ValueError(f"{str(file)!r} has no rows")
