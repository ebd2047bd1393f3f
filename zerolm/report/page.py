"""The frame, the look and the tables that all pages share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

INK, BLUE, ORANGE, GREY, GREEN = "#1f2933", "#2563a8", "#d9622b", "#8a94a0", "#2f8f5b"
STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 1060px; margin: 2rem auto }
body { padding: 0 1rem }
h1 { font-size: 1.6rem; margin-bottom: 0 } h2 { font-size: 1.15rem; margin-top: 2rem }
p.lead { margin-top: .3rem; color: #52606d }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid #e4e7eb }
th { color: #52606d; font-weight: 600 }
th:first-child, td:first-child, th.shape, td.shape { text-align: left }
.card { border: 1px solid #cbd2d9; border-left: 5px solid #d9622b; padding: .6rem 1.2rem; border-radius: 4px }
.card b.big { font-size: 1.15rem }
.note { color: #52606d; font-size: .92rem }
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """Text of a table's cell, how it is marked, and a note in small print; ``link`` is an address."""

    text: str
    kind: str = ""
    note: str = ""
    link: str = ""

    def html(self, tag: str) -> str:
        mark = f' class="{escape(self.kind)}"' if self.kind else ""
        text = escape(self.text)
        if self.link:
            text = f'<a href="{escape(self.link)}">{text}</a>'
        note = f" <small>{escape(self.note)}</small>" if self.note else ""
        return f"<{tag}{mark}>{text}{note}</{tag}>"


def table(head: Sequence[Cell | str], rows: Iterable[Sequence[Cell | str]], kind: str = "") -> str:
    """A table of texts, which are escaped."""
    mark = f' class="{escape(kind)}"' if kind else ""
    lines = "".join(_line(row, "td") for row in rows)
    return f"<table{mark}><thead>{_line(head, 'th')}</thead><tbody>{lines}</tbody></table>"


def _line(cells: Sequence[Cell | str], tag: str) -> str:
    made = (cell if isinstance(cell, Cell) else Cell(cell) for cell in cells)
    return f"<tr>{''.join(cell.html(tag) for cell in made)}</tr>"


def page(title: str, body: Iterable[str], style: str = "") -> str:
    """One self-contained page: ``body`` and ``style`` are HTML and CSS, the title is text."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}{style}</style>'
    viewport = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    return (
        f'<!doctype html><html lang="en"><head>{head}{viewport}</head><body>{"".join(body)}</body></html>\n'
    )
