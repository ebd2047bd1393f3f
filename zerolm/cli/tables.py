"""Tables and text as wide as the terminal; in a pipe a row is one line, however long."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

LEAST: Final = 24
"""Columns that are worth folding a text into; with fewer it stands on lines of its own."""
INDENT: Final = 4


def terminal_width() -> int | None:
    """Return the columns of the terminal, None in a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


def show_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, remarks: bool = False) -> None:
    """Print columns below their heads: names to the left, numbers to the right.

    With ``remarks`` the last column is text, which is folded. Columns that the terminal has no room for
    follow in a second table, beside the names again.
    """
    for line in table_lines(head, rows, terminal_width(), remarks=remarks):
        print(line)


def show_text(text: str) -> None:
    """Print sentences, folded on a terminal."""
    width = terminal_width()
    indent = " " * (len(text) - len(text.lstrip()))
    print(textwrap.fill(text, width, subsequent_indent=indent) if width and text else text)


def table_lines(
    head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, *, remarks: bool = False
) -> Iterator[str]:
    """Yield the lines of a table of at most ``width`` columns, of any width where that is None."""
    lines = [list(map(str, line)) for line in (head, *rows)]
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
    elif width - taken >= LEAST:
        first, *others = textwrap.wrap(text, width - taken)
        yield f"{line:<{taken}}{first}"
        yield from (" " * taken + other for other in others)
    else:
        yield line.rstrip()
        yield from textwrap.wrap(text, width, initial_indent=" " * INDENT, subsequent_indent=" " * INDENT)
