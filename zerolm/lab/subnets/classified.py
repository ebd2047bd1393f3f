"""Texts with their classes, as they are and as an attack left them: tables that others wrote.

Attacked texts are in the columns that TextAttack writes (``--log-to-csv``, arXiv 2005.05909).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zerolm.settings import shown
from zerolm.settings.messages import LISTED
from zerolm.text.documents import read_file
from zerolm.text.pairs import table_rows

CLEAN: Final = ("text", "label")
ATTACKED: Final = ("original_text", "ground_truth_output", "perturbed_text", "result_type")
OUTCOMES: Final = ("Successful", "Failed", "Skipped", "Maximized")
SKIPPED: Final = "Skipped"
LINE_END: Final = "<SPLIT>"
"""What stands for the end of a line in a text of TextAttack."""
MARKED: Final = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
"""A word that the attack changed, as TextAttack marks it in a file."""


@dataclass(frozen=True)
class ClassifiedTexts:
    """Texts, the number of the class of each, and the SHA-256 of their file.

    Of attacked ones ``perturbed`` are the texts as the attack left them. ``attacked`` is False of rows that
    the attack skipped, for its victim was wrong before: of these both texts are one.
    """

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    sha256: str
    perturbed: tuple[str, ...] = ()
    attacked: tuple[bool, ...] = ()


def read_classified(file: Path, classes: Sequence[str]) -> ClassifiedTexts:
    """Return the rows of a table with the columns ``text`` and ``label``.

    A label is the name or the number of one of the ``classes``. ``ValueError`` names the line and what is
    wrong with it.
    """
    content = read_file(file)
    rows = [_row(place, row, CLEAN, classes) for place, row in table_rows(str(file), content.content)]
    if not rows:
        raise ValueError(f"{str(file)!r} has no rows")
    texts, labels = zip(*rows, strict=True)
    return ClassifiedTexts(texts, labels, content.sha256)


def read_attacked(file: Path, classes: Sequence[str]) -> ClassifiedTexts:
    """Return the rows of a table of TextAttack, without its marks around words.

    ``ValueError`` names the line and what is wrong with it, or says that no text of it was attacked.
    """
    content = read_file(file)
    rows = [_attacked(place, row, classes) for place, row in table_rows(str(file), content.content)]
    if not any(attacked for *_, attacked in rows):
        raise ValueError(f"the attack skipped all {len(rows)} rows of {str(file)!r}: no text was attacked")
    texts, labels, perturbed, attacked = zip(*rows, strict=True)
    return ClassifiedTexts(texts, labels, content.sha256, perturbed, attacked)


def _attacked(place: str, row: Mapping[str, Any], classes: Sequence[str]) -> tuple[str, int, str, bool]:
    original, label = _row(place, row, ATTACKED[:2], classes)
    perturbed, outcome = (row.get(name) for name in ATTACKED[2:])
    if outcome not in OUTCOMES:
        raise ValueError(f"{place} has result_type {shown(outcome)}; {', '.join(OUTCOMES)} can be")
    before, after = (
        MARKED.sub(r"\1", text).replace(LINE_END, "\n") for text in (original, str(perturbed or ""))
    )
    if not after.strip() or (outcome == SKIPPED and before != after):
        raise ValueError(f"{place} has perturbed_text {shown(perturbed)}; a skipped one is the original")
    return before, label, after, outcome != SKIPPED


def _row(
    place: str, row: Mapping[str, Any], columns: tuple[str, ...], classes: Sequence[str]
) -> tuple[str, int]:
    """Return a text and the number of its class."""
    lacking = [column for column in columns if column not in row]
    if lacking:
        names = ", ".join(str(name)[:40] for name in list(row)[:LISTED])
        raise ValueError(f"{place} has no {lacking[0]}; it has {names}")
    text, label = (row[column] for column in columns)
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{place} has {columns[0]} {shown(text)}; columns are {', '.join(columns)}")
    name = str(label).strip()
    if name in classes:
        return text, list(classes).index(name)
    if re.fullmatch(r"[0-9]{1,9}(\.0*)?", name) and int(float(name)) < len(classes):
        return text, int(float(name))
    some = ", ".join(classes[:8]) + (" ..." if len(classes) > 8 else "")
    raise ValueError(
        f"{place} has {columns[1]} {shown(label)}; the head has {len(classes)} classes, 0 to "
        f"{len(classes) - 1}: {some}"
    )
