"""Rows of a comparison in order, and by score over all benchmarks."""

from __future__ import annotations

from zerolm.architecture import Floats
from zerolm.comparison.results import Comparison, ScoreRow, Section

Key = tuple[str, float | str | None]
"""A score and its alpha: the same on all benchmarks, for the best alpha has one name."""


def key_of(row: ScoreRow) -> Key:
    """Return the key of a row."""
    return row.score, row.alpha


def name_of(key: Key) -> str:
    """Return the name of a score, with its alpha."""
    return key[0] if key[1] is None else f"{key[0]} {key[1]}"


def standings(comparison: Comparison) -> dict[Key, list[tuple[Section, ScoreRow]]]:
    """Return the rows of each score."""
    rows: dict[Key, list[tuple[Section, ScoreRow]]] = {}
    for section in comparison.sections:
        for row in section.rows:
            rows.setdefault(key_of(row), []).append((section, row))
    return rows


def row_of(section: Section, score: str, *, saw_labels: bool = False) -> ScoreRow | None:
    """Return the row of a score without alpha, or of the best alpha; None where there is none."""
    rows = (row for row in section.rows if row.score == score and row.saw_labels == saw_labels)
    return next((row for row in rows if saw_labels or row.alpha is None), None)


def label_free(section: Section) -> list[ScoreRow]:
    """Return the scores that a user can have without labels, best first; no baselines."""
    rows = (row for row in section.rows if not row.baseline and not row.saw_labels and row.tau is not None)
    return sorted(rows, key=_falling)


def by_tau(section: Section) -> list[ScoreRow]:
    """Return all rows, best first, those without a tau-b last."""
    return sorted(section.rows, key=_falling)


def _falling(row: ScoreRow) -> float:
    return 2.0 if row.tau is None else -row.tau


def in_own_unit(section: Section) -> Floats:
    """Return the results (n,) as the file gives them."""
    return section.result if section.truth.is_higher_better(section.metric) else -section.result
