"""Pages: one self-contained HTML file of a heading, sheets, and how to repeat the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from typing import Any, Final

from zerolm.show.drawing import chart_html
from zerolm.show.markup import command, folded, pairs_html, paragraphs, table
from zerolm.show.sheet import NOTEBOOK, PAGE, Heading, Sheet
from zerolm.show.text import short

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
ROWS: Final = 20
COLUMNS: Final = 16
CELL: Final = 50
"""The most that a table shows of rows, columns and characters of a cell."""


def page(
    name: str,
    heading: Heading,
    sheets: Iterable[Sheet],
    configuration: Mapping[str, Any] | None = None,
    origin: str = "",
) -> str:
    """Return the page of a result of the command ``name``; ``origin`` says which version made it, and when.

    With the ``configuration`` that it ran with, the page ends with how to repeat the run.
    """
    parts = zip(heading.labels, (heading.finding, heading.baseline, heading.trust), strict=True)
    findings = "".join(f"<div><h2>{label}</h2><p>{escape(text)}</p></div>" for label, text in parts if text)
    title = escape(heading.title)
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>zerolm {escape(name)}: {title}</title><style>{_asset('page.css')}</style>"
    )
    shown = [sheet for sheet in sheets if PAGE in sheet.on]
    links = [f'<a href="#{sheet.mark}">{escape(sheet.title)}</a>' for sheet in shown if sheet.mark]
    navigation = f'<nav aria-label="Sections">{"".join(links)}</nav>' if len(links) > 1 else ""
    whole = (
        f'<!doctype html>\n<html lang="en"><head>{head}</head><body><header id="top">'
        f'<p class="command-name">zerolm {escape(name)}</p><h1>{title}</h1>'
        f'<p class="lead">{escape(heading.lead)}</p></header><main>'
        f'<section class="findings" aria-label="Findings">{findings}</section>'
        f"{navigation}{''.join(map(_section, shown))}{_repeated(configuration)}</main>"
        f"<footer><p>{escape(origin)} This page is complete: it loads nothing.</p>"
        f"</footer><script>{_asset('page.js')}</script></body></html>\n"
    )
    # A text of a file may hold what no encoding has; it is then written by its number.
    return whole.encode("utf-8", "xmlcharrefreplace").decode("utf-8")


def _asset(name: str) -> str:
    return (files("zerolm.show") / "assets" / name).read_text("utf-8")


def _section(sheet: Sheet) -> str:
    anchor = f' id="{escape(sheet.mark)}"' if sheet.mark else ""
    top = ' <a class="top" href="#top">top</a>' if sheet.mark else ""
    title = f"<h2>{escape(sheet.title)}{top}</h2>" if sheet.title else ""
    return f"<section{anchor}>{title}{body(sheet)}</section>"


def body(sheet: Sheet, level: int = 3) -> str:
    """Return a sheet without its title: lead, charts, table, sentences, notes, commands, and its parts."""
    charts = "".join(map(chart_html, sheet.charts))
    if sheet.layout:
        charts = f'<div class="{sheet.layout}">{charts}</div>'
    return "".join(
        [
            paragraphs([sheet.lead], "lead"),
            charts,
            table_html(sheet),
            paragraphs(sheet.sentences),
            paragraphs(sheet.notes, "note"),
            *map(command, sheet.commands),
            *(_part(part, level) for part in sheet.parts if PAGE in part.on),
        ]
    )


def table_html(sheet: Sheet) -> str:
    """Return the table of a sheet; nothing where it has none."""
    if not sheet.rows:
        return ""
    return pairs_html(sheet.rows) if sheet.kind == "pairs" else table(sheet.head, sheet.rows, sheet.kind)


def _part(sheet: Sheet, level: int) -> str:
    has_heading = bool(sheet.title) and not sheet.folded
    inner = body(sheet, level + has_heading)
    if sheet.folded:  # it is unfolded where the page is printed
        return f"<details data-print><summary>{escape(sheet.title)}</summary>{inner}</details>"
    return (f"<h{level}>{escape(sheet.title)}</h{level}>" if sheet.title else "") + inner


def _repeated(configuration: Mapping[str, Any] | None) -> str:
    """Return how to repeat the run from its configuration, nothing where none is known."""
    if not configuration:
        return ""
    import yaml

    text = yaml.safe_dump(dict(configuration), sort_keys=False, allow_unicode=False)
    line = f"zerolm {configuration.get('command', '')} --config run.yaml"
    return f"<section><h2>Repeat this run</h2>{command(line)}{folded('run.yaml', text)}</section>"


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
