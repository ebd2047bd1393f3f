"""A plain page of a result, for commands that ``zerolm.report`` has none for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

MOST_ROWS: Final = 40
"""Rows of a table in a notebook."""


def plain_fragment(lines: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return lines and a table as HTML, all of it escaped; the rows may lack fields."""
    heads = list(dict.fromkeys(name for row in rows for name in row))
    body = "".join(_line("td", [row.get(name, "") for name in heads]) for row in rows[:MOST_ROWS])
    more = f"<p>and {len(rows) - MOST_ROWS} more</p>" if len(rows) > MOST_ROWS else ""
    table = f"<table>{_line('th', heads)}{body}</table>{more}" if rows else ""
    return f"<pre>{escape(chr(10).join(lines))}</pre>{table}"


def plain_page(title: str, lines: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one page that needs nothing else."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>'
    body = f"<h1>{escape(title)}</h1>{plain_fragment(lines, rows)}"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _line(tag: str, values: Sequence[Any]) -> str:
    texts = (f"{value:.6g}" if isinstance(value, float) else str(value) for value in values)
    return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>"
