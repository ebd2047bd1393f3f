"""``zerolm bench ablate``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from zerolm.cli.progress import patient
from zerolm.comparison.ablate import ablate as run_ablation
from zerolm.comparison.ablation import Ablation
from zerolm.groundtruth.reader import chosen
from zerolm.report.ablation import NOTES, Sheet, sheets, title, transfer_sheets
from zerolm.report.ablation_conclusions import conclusions, to_document

Names = Annotated[list[str] | None, typer.Argument(help="Benchmarks in the data folder, or files.")]
Every = Annotated[bool, typer.Option("--all", help="All benchmarks of the data folder.")]
Data = Annotated[
    str | None, typer.Option(help="Folder of benchmark files; else ZEROLM_DATA, else the cache.")
]
Metric = Annotated[
    str | None, typer.Option(help="A result of the file; else the file's own, or its only one.")
]


def ablate(
    names: Names = None,
    every: Every = False,
    data: Data = None,
    metric: Metric = None,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show what ZeroLM's score hangs on: matrices that count, initialisation, seed, and borrowed alphas."""
    names = chosen(names or [], data, every=every)
    unusable = left_out if every else None
    ablation = run_ablation(names, data=data, metric=metric, unusable=unusable, progress=patient())
    if json_output:
        print(json.dumps(to_document(ablation)))
    else:
        show(ablation)


def left_out(error: ValueError) -> None:
    """Say on stderr that a benchmark of the folder is passed over."""
    print(f"zerolm: left out: {error}", file=sys.stderr)


def show(ablation: Ablation) -> None:
    """The tables of each benchmark, the borrowed alphas, and what all of it says."""
    for section in ablation.sections:
        print(f"\n{title(section)}")
        for sheet in sheets(ablation, section):
            show_sheet(sheet)
    for sheet in transfer_sheets(ablation):
        show_sheet(sheet)
    for line in (*NOTES, *conclusions(ablation).values()):
        print(f"\n{line}")


def show_sheet(sheet: Sheet) -> None:
    """A table under its title, and what it says."""
    print(f"\n{sheet.title}")
    for line in aligned([sheet.head, *sheet.rows]):
        print(line.rstrip())
    for sentence in sheet.sentences:
        print(sentence)


def aligned(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as their cells and two spaces apart, the first to the left."""
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for first, *others in lines:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield "  ".join((first.ljust(widths[0]), *cells))
