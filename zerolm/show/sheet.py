"""Sheets: the parts of a result as plain data, which page, terminal and notebook show."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from zerolm.show.charts import Chart

PAGE, TERMINAL, NOTEBOOK = "page", "terminal", "notebook"
LABELS: Final = ("What was found", "Against the baseline", "How far to trust it")


@dataclass(frozen=True, slots=True)
class Heading:
    """The first lines of a page: its title, and what was found, against what, how surely.

    Each of ``finding``, ``baseline`` and ``trust`` is one or more sentences, or empty; ``lead`` says what was
    asked, ``labels`` what the three are called.
    """

    title: str
    lead: str
    finding: str
    baseline: str = ""
    trust: str = ""
    labels: tuple[str, str, str] = LABELS


@dataclass(frozen=True, slots=True)
class Cell:
    """Text of a table's cell, how it is marked, and a note in small print.

    ``kind`` shape is text that is folded. ``link`` is an address on the page, ``record`` the number of what a
    click on the text shows in detail.
    """

    text: str
    kind: str = ""
    note: str = ""
    link: str = ""
    record: int | None = None


Row = Sequence[Cell | str]


@dataclass(frozen=True, slots=True)
class Sheet:
    """One part of a result: a table, the ``sentences`` that it supports, charts, and ``parts`` below it.

    ``lead`` says what it is of, ``notes`` (on pages alone) how to read it. ``kind`` is the table's: ``pairs``
    are names with values. A ``folded`` part is hidden behind its title until a reader opens it. ``on`` says
    where the sheet is shown, ``layout`` how its charts stand: side by side (pair, triple), or in a column.
    ``commands`` can be copied. ``mark`` is its anchor.
    """

    title: str = ""
    head: Row = ()
    rows: Sequence[Row] = ()
    sentences: Sequence[str] = ()
    notes: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    lead: str = ""
    kind: str = "table"
    parts: Sequence[Sheet] = ()
    commands: Sequence[str] = ()
    folded: bool = False
    on: Collection[str] = (PAGE, TERMINAL)
    layout: str = ""
    mark: str = ""


def pairs(title: str, rows: Iterable[tuple[str, str]], on: Collection[str] = (PAGE, TERMINAL)) -> Sheet:
    """Return a sheet of names with their values."""
    return Sheet(title, rows=list(rows), kind="pairs", on=on)


def as_cell(cell: Cell | str) -> Cell:
    return cell if isinstance(cell, Cell) else Cell(cell)
