"""Columns of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def aligned(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return columns as wide as their cells and two spaces apart, the first to the left."""
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for first, *others in lines:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join((first.ljust(widths[0]), *cells))
