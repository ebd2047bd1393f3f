"""The terminal: lines, tables and bars, as wide as it is; in a pipe a row is one line, however long."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from io import StringIO
from itertools import accumulate
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from zerolm.show.charts import Bars
from zerolm.show.sheet import TERMINAL, Cell, Row, Sheet, as_cell

ROOM: Final = 24
"""Columns that are worth folding a text into."""
UNFOLDED: Final = 1 << 16
"""Columns of a table in a pipe."""


def terminal_width() -> int | None:
    """Return the columns of the terminal, None in a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def result_lines(first: Iterable[str], sheets: Iterable[Sheet], width: int | None) -> Iterator[str]:
    """Yield the first lines of a result, then its sheets; titles where there are several."""
    for line in first:
        yield from text_lines(line, width)
    shown = [sheet for sheet in sheets if TERMINAL in sheet.on]
    for sheet in shown:
        yield from sheet_lines(sheet, width, is_titled=len(shown) > 1)


def sheet_lines(sheet: Sheet, width: int | None, is_titled: bool = True) -> Iterator[str]:
    """Yield the title of a sheet, its table or bars, its sentences, and its parts."""
    title = f"{sheet.title}: {sheet.lead}" if sheet.title and sheet.lead else sheet.title
    if is_titled and title:
        yield ""
        yield from text_lines(title, width)
    if sheet.kind == "pairs":
        for name, text in sheet.rows:
            yield from text_lines(f"{as_cell(name).text}: {as_cell(text).text}", width)
    elif sheet.rows:
        yield from table_lines(sheet.head, sheet.rows, width)
    else:
        for chart in sheet.charts:
            if isinstance(chart, Bars):
                yield from table_lines(["", ""], [(bar.name, bar.text) for bar in chart.rows], width)
    for text in sheet.sentences:
        yield from text_lines(text, width)
    for part in sheet.parts:
        if TERMINAL in part.on:
            yield from sheet_lines(part, width)


def text_lines(text: str, width: int | None) -> Iterator[str]:
    """Yield sentences, folded on a terminal."""
    indent = " " * (len(text) - len(text.lstrip()))
    yield from textwrap.wrap(text, width, subsequent_indent=indent) if width and text else [text]


def table_lines(head: Row, rows: Iterable[Row], width: int | None) -> Iterator[str]:
    """Yield a table, numbers to the right and texts last; without a ``width``, in a pipe, a row is a line.

    On a terminal texts are folded, and columns without room follow in a further table.
    """
    heads, lines = [as_cell(cell) for cell in head], [[as_cell(cell) for cell in row] for row in rows]
    columns = [[_plain(line[place]) for line in (heads, *lines)] for place in range(len(heads))]
    texts = [place for place, cell in enumerate(heads) if place and cell.kind == "shape"]
    rest = [*(place for place in range(1, len(heads)) if place not in texts), *texts]
    room = width or UNFOLDED
    widths = [max(map(len, column)) + 2 for column in columns]
    needed = [min(size, ROOM) if place in texts else size for place, size in enumerate(widths)]
    while True:
        ends = accumulate((needed[place] for place in rest), initial=needed[0])
        count = max(1, sum(end <= room + 2 for end in ends) - 1)
        shown, rest = [0, *rest[:count]], rest[count:]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        for place in shown:
            is_number = place in shown[1:] and place not in texts
            is_whole = place not in texts and widths[place] <= room
            table.add_column(justify="right" if is_number else "left", no_wrap=is_whole, overflow="fold")
        for row in zip(*(columns[place] for place in shown), strict=True):
            table.add_row(*map(Text, row))
        page = StringIO()
        Console(file=page, width=room).print(table)
        yield from map(str.rstrip, page.getvalue().splitlines())
        if not rest:
            return
        yield ""


def _plain(cell: Cell) -> str:
    return f"{cell.text} {cell.note}".strip()
