"""Pieces of HTML that pages and notebooks share: tables, lists of names, commands, folded text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from zerolm.show.sheet import Cell, Row, as_cell


def table(head: Row, rows: Iterable[Row], kind: str = "table") -> str:
    """Return a table of texts, which are escaped; it scrolls by itself where it is too wide."""
    lines = "".join(_line(row, "td") for row in rows)
    mark = escape(kind)
    return (
        f'<div class="scroll" role="group" aria-label="{mark}" tabindex="0">'
        f'<table class="{mark}"><thead>{_line(head, "th")}</thead><tbody>{lines}</tbody></table></div>'
    )


def _line(cells: Sequence[Cell | str], tag: str) -> str:
    return f"<tr>{''.join(_cell(as_cell(cell), tag) for cell in cells)}</tr>"


def _cell(cell: Cell, tag: str) -> str:
    mark = f' class="{escape(cell.kind)}"' if cell.kind else ""
    text = escape(cell.text)
    if cell.link:
        text = f'<a href="{escape(cell.link)}">{text}</a>'
    if cell.record is not None:
        text = f'<button type="button" class="show" data-record="{cell.record}">{text}</button>'
    note = f" <small>{escape(cell.note)}</small>" if cell.note else ""
    return f"<{tag}{mark}>{text}{note}</{tag}>"


def pairs_html(rows: Iterable[Row]) -> str:
    """Return names with their values, one below the other."""
    lines = "".join(
        f"<div><dt>{escape(as_cell(name).text)}</dt><dd>{escape(as_cell(text).text)}</dd></div>"
        for name, text in rows
    )
    return f'<dl class="pairs wide">{lines}</dl>'


def paragraphs(lines: Iterable[str], kind: str = "") -> str:
    """Return texts as paragraphs; empty ones are left out."""
    mark = f' class="{kind}"' if kind else ""
    return "".join(f"<p{mark}>{escape(line)}</p>" for line in lines if line)


def command(text: str, slot: str = "") -> str:
    """Return a command line with a button that copies it."""
    mark = f' data-slot="{slot}"' if slot else ""
    return (
        f'<div class="command"><code{mark}>{escape(text)}</code>'
        '<button type="button" class="copy" hidden>Copy</button></div>'
    )


def folded(title: str, text: str, slot: str = "") -> str:
    """Return text as it is, behind its title."""
    mark = f' data-slot="{slot}"' if slot else ""
    return f"<details><summary>{escape(title)}</summary><pre{mark}>{escape(text)}</pre></details>"


def data(document: Any, mark: str) -> str:
    """Return JSON for the script of the page; nothing in it can end the element."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True)
    return f'<script type="application/json" class="{mark}">{text.replace("<", chr(92) + "u003c")}</script>'
