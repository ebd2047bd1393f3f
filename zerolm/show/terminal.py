"""The terminal: lines, tables and bars, as wide as it is; in a pipe a row is one line, however long."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from zerolm.show.charts import Bars
from zerolm.show.sheet import TERMINAL, Cell, Row, Sheet, as_cell

ROOM: Final = 24
"""Columns that are worth folding a text into; with fewer it stands on lines of its own."""
INDENT: Final = 4


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
        yield from _sheet_table(sheet.head, sheet.rows, width)
    else:
        for chart in sheet.charts:
            if isinstance(chart, Bars):
                yield from table_lines(["", ""], [[bar.name, bar.text] for bar in chart.rows], width)
    for text in sheet.sentences:
        yield from text_lines(text, width)
    for part in sheet.parts:
        if TERMINAL in part.on:
            yield from sheet_lines(part, width)


def text_lines(text: str, width: int | None) -> Iterator[str]:
    """Yield sentences, folded on a terminal."""
    indent = " " * (len(text) - len(text.lstrip()))
    yield from textwrap.wrap(text, width, subsequent_indent=indent) if width and text else [text]


def _sheet_table(head: Row, rows: Sequence[Row], width: int | None) -> Iterator[str]:
    """Yield a table whose texts come last, where there is room to fold them."""
    heads = [as_cell(cell) for cell in head]
    texts = [place for place, cell in enumerate(heads) if place and cell.kind == "shape"]
    numbers = [place for place in range(len(heads)) if place not in texts]

    def line(cells: Sequence[Cell]) -> list[str]:
        remark = "  ".join(filter(None, (_plain(cells[place]) for place in texts)))
        return [*(_plain(cells[place]) for place in numbers), *([remark] if texts else [])]

    body = [line([as_cell(cell) for cell in row]) for row in rows]
    yield from table_lines(line(heads), body, width, remarks=bool(texts))


def _plain(cell: Cell) -> str:
    return f"{cell.text} {cell.note}".strip() if cell.note else cell.text


def table_lines(
    head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, *, remarks: bool = False
) -> Iterator[str]:
    """Yield the lines of a table of at most ``width`` columns, of any width where that is None.

    Names stand to the left, numbers to the right; with ``remarks`` the last column is text, which is folded.
    Columns that do not fit follow in a second table, which repeats the names. A head without words is left
    out.
    """
    lines = [list(map(str, line)) for line in ((head, *rows) if any(head) else rows)]
    if not lines:
        return
    texts = [line.pop() for line in lines] if remarks else [""] * len(lines)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    parts = _parts(widths, width)
    for part in parts:
        last = part is parts[-1]
        taken = sum(widths[column] + 2 for column in (0, *part))
        for line, text in zip(lines, texts, strict=True):
            cells = [line[0].ljust(widths[0]), *(line[column].rjust(widths[column]) for column in part)]
            yield from _with_text("  ".join(cells), text if last else "", taken, width)
        if not last:
            yield ""


def _parts(widths: Sequence[int], width: int | None) -> list[list[int]]:
    """Return the columns after the first, in as many tables as they need room."""
    parts: list[list[int]] = [[]]
    taken = widths[0]
    for column in range(1, len(widths)):
        if width is not None and parts[-1] and taken + 2 + widths[column] > width:
            parts.append([])
            taken = widths[0]
        parts[-1].append(column)
        taken += 2 + widths[column]
    return parts


def _with_text(line: str, text: str, taken: int, width: int | None) -> Iterator[str]:
    """Yield a line of cells and the text behind it, below it where there is little room."""
    if width is None or not text or taken + len(text) <= width:
        yield f"{line:<{taken}}{text}".rstrip() if text else line.rstrip()
    elif width - taken >= ROOM:
        first, *others = textwrap.wrap(text, width - taken)
        yield f"{line:<{taken}}{first}"
        yield from (" " * taken + other for other in others)
    else:
        yield line.rstrip()
        yield from textwrap.wrap(text, width, initial_indent=" " * INDENT, subsequent_indent=" " * INDENT)
