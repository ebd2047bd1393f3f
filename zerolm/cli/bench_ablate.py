"""``zerolm bench ablate``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from zerolm.cli.progress import patient
from zerolm.groundtruth.ablate import ablate as run_ablation
from zerolm.groundtruth.ablation import Ablation
from zerolm.groundtruth.conclusions import conclusions
from zerolm.report.ablation import NOTES, Sheet, sheets, title, transfer_sheets


def ablate(
    names: Annotated[
        list[str] | None, typer.Argument(help="Benchmarks in the data folder, or files; else all of them.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All benchmarks of the data folder.")] = False,
    data: Annotated[
        str | None, typer.Option(help="Folder of benchmark files; else ZEROLM_DATA, else the cache.")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="A result of the file; else the file's own.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """What ZeroLM's score hangs on: matrices that count, initialisation, seed, and borrowed alphas."""
    if every and names:
        raise ValueError(f"either name benchmarks or ask for --all, not both ({', '.join(names)} and --all)")
    found = run_ablation(names or [], data=data, metric=metric, progress=patient())
    if json_output:
        print(json.dumps(found.to_json()))
    else:
        show(found)


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
    """Columns as wide as their cells, the first to the left."""
    lines = [sheet.head, *sheet.rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    print(f"\n{sheet.title}")
    for first, *others in lines:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        print("  ".join((first.ljust(widths[0]), *cells)).rstrip())
    for sentence in sheet.sentences:
        print(sentence)
