"""Notebooks: the first lines of a result, a table and a chart, without style or script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any, Final

from zerolm.show.drawing import chart_html
from zerolm.show.markup import paragraphs
from zerolm.show.page import table_html
from zerolm.show.sheet import NOTEBOOK, Sheet
from zerolm.show.text import short

ROWS: Final = 20
COLUMNS: Final = 16
CELL: Final = 50
"""The most that a table shows of rows, columns and characters of a cell."""


def fragment(lead: str, sheets: Iterable[Sheet]) -> str:
    """Return the sheets that a notebook shows, below a sentence."""
    parts = [paragraphs([lead])]
    for sheet in sheets:
        if NOTEBOOK in sheet.on:
            parts += [chart_html(chart, narrow=True) for chart in sheet.charts]
            parts.append(table_html(replace(sheet, rows=sheet.rows[:ROWS])))
            parts.append(_rest(len(sheet.rows)))
    return f'<div style="max-width:820px">{"".join(parts)}</div>'


def table_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows by column as a small table, the first of them where there are many."""
    heads = list(dict.fromkeys(name for row in rows for name in row))[:COLUMNS]
    cells = [[row.get(head) for head in heads] for row in rows[:ROWS]]
    lines = [_line("th", heads), *(_line("td", line) for line in cells)]
    return f"<table>{''.join(lines)}</table>{_rest(len(rows))}"


def _rest(count: int) -> str:
    return f"<p>and {count - ROWS:,} more</p>" if count > ROWS else ""


def _line(tag: str, cells: Sequence[Any]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(_text(cell))}</{tag}>' for cell in cells)}</tr>"


def _text(cell: Any) -> str:
    text = "" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else str(cell)
    return short(text, CELL)
