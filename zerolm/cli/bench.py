"""``zerolm bench``."""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zerolm.cli import bench_ablate
from zerolm.cli.bench_ablate import Data, Every, Metric, Names, aligned, left_out
from zerolm.cli.flags import declared, parsed_options, with_flags
from zerolm.cli.progress import patient
from zerolm.cli.proxy_options import Chosen, Store, listed, needing_torch
from zerolm.comparison.ablate import ablate
from zerolm.comparison.ablation import Ablation
from zerolm.comparison.bench import More
from zerolm.comparison.bench import bench as run_bench
from zerolm.comparison.results import Comparison, Section
from zerolm.groundtruth.reader import chosen
from zerolm.io.folders import check_new, new_folder
from zerolm.report.facts import facts, tokens_of
from zerolm.report.rows import by_tau
from zerolm.report.tables import remark
from zerolm.scores import SCORES, all_variants

if TYPE_CHECKING:
    from zerolm.proxies.job import Measured

Text = Annotated[str | None, typer.Option(metavar="FILE|random", help="Tokens of --proxies; else random.")]
Jobs = Annotated[int | None, typer.Option(help="Networks that --proxies compute at the same time; else 1.")]


def application(plugins: bool) -> typer.Typer:
    """Return the commands, ``run`` with the options of all scores."""
    app = typer.Typer(help="Compare scores with published results.", no_args_is_help=True)
    app.command("ablate")(bench_ablate.ablate)
    taken = inspect.signature(run).parameters
    app.command("run")(with_flags(run, declared(SCORES.entries(plugins), taken), repeated=True))
    return app


def run(
    names: Names = None,
    every: Every = False,
    data: Data = None,
    metric: Metric = None,
    out: Annotated[str | None, typer.Option(metavar="DIR", help="Folder for report.html and tables.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the folder if it exists.")] = False,
    proxies: Chosen = None,
    text: Text = None,
    jobs: Jobs = None,
    store: Store = None,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    **given: Any,
) -> None:
    """Every closed-form score against published results, with the baselines: is it better than counting?

    With --proxies, these are computed too, on networks that are built for it, and stand beside the scores.
    """
    names = chosen(names or [], data, every=every)
    options = parsed_options(SCORES.entries(), given)
    if out is not None and not out.strip():
        raise ValueError("out names no folder")
    folder = Path(out) if out is not None else None
    if folder is not None:
        check_new(folder, force)
    progress = patient()
    measured: list[Measured] = []
    more = beside(proxies, text, jobs, store, measured, progress)
    unusable = left_out if every else None
    comparison = run_bench(
        names, data=data, metric=metric, options=options, more=more, unusable=unusable, progress=progress
    )
    comparison = replace(comparison, note=tokens_of(measured[0].source) if measured else "")
    if folder is not None:
        silent = (lambda *_: None) if every else None  # the comparison has told it
        ablation = ablate(names, data=data, metric=metric, unusable=silent, progress=progress)
        write(comparison, ablation, folder, force)
    for place, section in enumerate(comparison.sections):
        networks = measured[place].left_out if measured else {}
        for name, reason in {**section.left_out, **networks}.items():
            print(f"zerolm: {section.title}: {name} is left out: {reason}", file=sys.stderr)
    for name, reason in all_variants(options)[1].items():
        print(f"zerolm: {name} is left out: {reason}", file=sys.stderr)
    if json_output:
        print(json.dumps(comparison.to_json()))
        return
    for section in comparison.sections:
        show(section)
    if comparison.note:
        print(comparison.note)
    if out is not None:
        print(f"wrote {out}: report.html, result.json, rows.csv, scores.csv", file=sys.stderr)


def beside(
    proxies: str | None,
    text: str | None,
    jobs: int | None,
    store: Path | None,
    measured: list[Measured],
    progress: Any,
) -> More:
    """The proxies beside the scores, none unless they are named; results are added to ``measured``."""
    if proxies is None:
        for name, value in (("text", text), ("jobs", jobs), ("store", store)):
            if value is not None:
                raise ValueError(f"--{name} is of networks that are built: name --proxies too")
        return lambda *_: {}
    with needing_torch():
        from zerolm.proxies.measure import Request, measuring
    request = Request(listed(proxies), text or "random", jobs=1 if jobs is None else jobs, store=store)
    return measuring(request, measured, progress)


def write(comparison: Comparison, ablation: Ablation, out: Path, force: bool) -> None:
    """The page, and the numbers as JSON and CSV, in a new folder."""
    from zerolm.report.comparison_files import write_comparison

    with new_folder(out, force) as folder:
        write_comparison(comparison, folder, ablation)


HEADS = ("score", "tau-b", "95 %", "random ties", "rho", "over body", "95 %", "in budget", "regret 1/5")


def show(section: Section) -> None:
    """One table: what each score reaches, best first, and whether it beats counting parameters."""
    truth = section.truth
    better = "higher is better" if truth.is_higher_better(section.metric) else "lower is better"
    print(f"\n{section.title}: {section.metric} ({better}), {len(section.result)} architectures")
    rows, lines = by_tau(section), [HEADS]
    for row in rows:
        cells = (
            row.label,
            _show(row.tau),
            _span(row.tau_low, row.tau_high),
            _show(row.tau_random_ties),
            _show(row.rho),
            "" if row.score == "body_params" else _signed(row.gain),
            "" if row.score == "body_params" else _span(row.gain_low, row.gain_high, sign=True),
            _show(row.within_budget),
            f"{row.regret_1:.3g}/{row.regret_5:.3g}",
        )
        lines.append(cells)
    for line, note in zip(aligned(lines), ("", *map(remark, rows)), strict=True):
        print(f"{line}  {note}".rstrip())
    for name, text in facts(section):
        print(f"{name}: {text}")


def _show(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.4f}"


def _span(low: float | None, high: float | None, sign: bool = False) -> str:
    if low is None or high is None:
        return "-"
    return f"{low:+.3f}..{high:+.3f}" if sign else f"{low:.3f}..{high:.3f}"
