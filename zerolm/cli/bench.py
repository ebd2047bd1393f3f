"""``zerolm bench``."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Annotated

import typer

from zerolm.cli.progress import patient
from zerolm.cli.units import parse_numbers
from zerolm.groundtruth.bench import Row
from zerolm.groundtruth.bench import bench as run_bench
from zerolm.spaces.document import ALPHAS

app = typer.Typer(help="Compare scores with published results.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Compare scores with published results."""


@app.command()
def run(
    names: Annotated[
        list[str] | None, typer.Argument(help="Benchmarks in the data folder, or files.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Folder of benchmark files; else ZEROLM_DATA.")] = None,
    metric: Annotated[str | None, typer.Option(help="A result of the file; else the file's own.")] = None,
    alpha: Annotated[list[str] | None, typer.Option(help="Of zerolm; repeat for several.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Kendall's tau-b and Spearman's rho of every closed-form score, with the baselines."""
    alphas = parse_numbers("alpha", alpha) if alpha else ALPHAS
    rows = run_bench(names or [], data=data, metric=metric, alphas=alphas, progress=patient())
    if json_output:
        print(json.dumps({"rows": [row.to_json() for row in rows]}))
        return
    for (benchmark, view), group in groupby(rows, key=lambda row: (row.benchmark, row.view)):
        _table(benchmark, view, list(group))


def _table(benchmark: str, view: str | None, rows: list[Row]) -> None:
    title = f"{benchmark}{f', view {view}' if view else ''}: {rows[0].metric}, {rows[0].n} architectures"
    print(f"\n{title}\n{'score':<26}{'tau-b':>8}{'random ties':>13}{'rho':>8}")
    for row in sorted(rows, key=lambda row: -(row.tau if row.tau is not None else -2.0)):
        alpha = (
            ""
            if row.alpha is None
            else f" {row.alpha}" + (f" ({row.best_alpha:g})" if row.best_alpha is not None else "")
        )
        mark = "  baseline" if row.baseline else "  saw the labels" if row.saw_labels else ""
        numbers = f"{_show(row.tau):>8}{_show(row.tau_random_ties):>13}{_show(row.rho):>8}"
        print(f"{row.score + alpha:<26}{numbers}{mark}")


def _show(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
