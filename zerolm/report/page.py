"""The one template of all pages: frame, findings, tables, and commands that can be copied."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any, Final

from zerolm import __version__

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
LABELS: Final = ("What was found", "Against the baseline", "How far to trust it")


@dataclass(frozen=True, slots=True)
class Heading:
    """The first lines of a page: its command and title, and what was found, against what, how surely.

    Each of ``finding``, ``baseline`` and ``trust`` is one or more sentences; ``lead`` says what was asked,
    ``labels`` what the three are called.
    """

    command: str
    title: str
    lead: str
    finding: str
    baseline: str
    trust: str
    labels: tuple[str, str, str] = LABELS


@dataclass(frozen=True, slots=True)
class Cell:
    """Text of a table's cell, how it is marked, and a note in small print.

    ``link`` is an address, ``record`` the number of what a click on the text shows in detail.
    """

    text: str
    kind: str = ""
    note: str = ""
    link: str = ""
    record: int | None = None

    def html(self, tag: str) -> str:
        mark = f' class="{escape(self.kind)}"' if self.kind else ""
        text = escape(self.text)
        if self.link:
            text = f'<a href="{escape(self.link)}">{text}</a>'
        if self.record is not None:
            text = f'<button type="button" class="show" data-record="{self.record}">{text}</button>'
        note = f" <small>{escape(self.note)}</small>" if self.note else ""
        return f"<{tag}{mark}>{text}{note}</{tag}>"


def page(heading: Heading, body: Iterable[str], configuration: Mapping[str, Any] | None = None) -> str:
    """Return one self-contained page; ``body`` is HTML, all of ``heading`` text.

    With the ``configuration`` that it ran with, the page ends with how to repeat the run.
    """
    parts = zip(heading.labels, (heading.finding, heading.baseline, heading.trust), strict=True)
    findings = "".join(f"<div><h2>{label}</h2><p>{escape(text)}</p></div>" for label, text in parts)
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{escape(heading.command)}: {escape(heading.title)}</title><style>{asset('page.css')}</style>"
    )
    whole = (
        f'<!doctype html>\n<html lang="en"><head>{head}</head><body><header id="top">'
        f'<p class="command-name">{escape(heading.command)}</p><h1>{escape(heading.title)}</h1>'
        f'<p class="lead">{escape(heading.lead)}</p></header><main>'
        f'<section class="findings" aria-label="Findings">{findings}</section>'
        f"{''.join(body)}{repeated(configuration)}</main>"
        f"<footer><p>Written by zerolm {escape(__version__)}. This page is complete: it loads nothing.</p>"
        f"</footer><script>{asset('page.js')}</script></body></html>\n"
    )
    # A text of a file may hold what no encoding has; it is then written by its number.
    return whole.encode("utf-8", "xmlcharrefreplace").decode("utf-8")


def asset(name: str) -> str:
    """Return the text of a file of ``report/assets``."""
    return (files("zerolm.report") / "assets" / name).read_text("utf-8")


def table(head: Sequence[Cell | str], rows: Iterable[Sequence[Cell | str]], kind: str = "table") -> str:
    """Return a table of texts, which are escaped; it scrolls by itself where it is too wide."""
    mark = f' class="{escape(kind)}"'
    lines = "".join(_line(row, "td") for row in rows)
    return (
        f'<div class="scroll" role="group" aria-label="{escape(kind)}" tabindex="0">'
        f"<table{mark}><thead>{_line(head, 'th')}</thead><tbody>{lines}</tbody></table></div>"
    )


def _line(cells: Sequence[Cell | str], tag: str) -> str:
    made = (cell if isinstance(cell, Cell) else Cell(cell) for cell in cells)
    return f"<tr>{''.join(cell.html(tag) for cell in made)}</tr>"


def section(title: str, *parts: str, mark: str = "") -> str:
    """Return HTML parts under a title, which is text; ``mark`` is the anchor."""
    anchor = f' id="{escape(mark)}"' if mark else ""
    return f"<section{anchor}><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>' if text else ""


def paragraphs(lines: Iterable[str]) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def pairs(rows: Iterable[tuple[str, str]], kind: str = "pairs") -> str:
    """Return names with their values, both text; of ``kind`` "pairs wide" one below the other."""
    lines = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in rows)
    return f'<dl class="{kind}">{lines}</dl>'


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


def folded_html(title: str, body: str) -> str:
    """Return HTML behind its title; it is unfolded where the page is printed."""
    return f"<details data-print><summary>{escape(title)}</summary>{body}</details>"


def data(document: Any, mark: str) -> str:
    """Return JSON for the script of the page; nothing in it can end the element."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True)
    return f'<script type="application/json" class="{mark}">{text.replace("<", chr(92) + "u003c")}</script>'


def repeated(configuration: Mapping[str, Any] | None) -> str:
    """Return how to repeat the run from its configuration, nothing where none is known."""
    if not configuration:
        return ""
    import yaml

    text = yaml.safe_dump(dict(configuration), sort_keys=False, allow_unicode=False)
    line = f"zerolm {configuration.get('command', '')} --config run.yaml"
    return section("Repeat this run", command(line), folded("run.yaml", text))
