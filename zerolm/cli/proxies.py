"""``zerolm proxies``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from zerolm.cli.bench import facts
from zerolm.cli.bench_ablate import Data, Metric, aligned
from zerolm.cli.progress import patient

if TYPE_CHECKING:
    from zerolm.architecture import Floats
    from zerolm.groundtruth.bench import Row, Section
    from zerolm.proxies.evaluate import Measured
    from zerolm.proxies.run import Run
    from zerolm.proxies.verdict import Verdict

TARGET = "A space, a benchmark (by name or file), a folder with a model; or `ls`, which lists the proxies."
RANDOM = "tokens are drawn at random: give --text FILE for what a proxy says on real text"
HEADS = ("score", "tau-b", "95 %", "random ties", "rho", "95 %", "over body", "in budget", "seconds")


def proxies(
    target: Annotated[str, typer.Argument(help=TARGET)],
    names: Annotated[str | None, typer.Option("--proxies", metavar="A,B,C", help="Else all of them.")] = None,
    text: Annotated[
        str, typer.Option(metavar="FILE|random", help="What tokens come from; random needs no data.")
    ] = "random",
    batch: Annotated[int, typer.Option(help="Sequences.")] = 64,
    length: Annotated[int, typer.Option(help="Tokens of each.")] = 128,
    parts: Annotated[int, typer.Option("--micro-batches", help="Equal parts of the batch.")] = 8,
    mode: Annotated[
        str, typer.Option(help="sane: as the papers say; faithful: as their code does.")
    ] = "sane",
    upstream: Annotated[
        str | None, typer.Option(help="What gradients come from: the task's loss (task), or ones.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of weights, masks and samples.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="Networks drawn from a space.")] = 20,
    limit: Annotated[
        int | None, typer.Option(min=2, help="Architectures of a benchmark at most, evenly spread.")
    ] = None,
    view: Annotated[str | None, typer.Option(help="Of flexibert: declared, published or trained.")] = None,
    metric: Metric = None,
    data: Data = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    jobs: Annotated[int, typer.Option(help="Networks computed at the same time.")] = 1,
    backend: Annotated[str, typer.Option(help="loky: on this machine; ray: on a Ray cluster.")] = "loky",
    store: Annotated[
        Path | None, typer.Option(metavar="FILE", help="SQLite file of evaluations; else in the cache.")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Every proxy of the field on networks that run: all from a handful of shared passes.

    What is computed is stored at once: a second run reuses it, and a killed one goes on where it was.
    """
    from zerolm.proxies.run import Request, run_proxies

    if target == "ls":
        listing(json_output)
        return
    found = run_proxies(
        target,
        Request(
            names=None if names is None else [name.strip() for name in names.split(",") if name.strip()],
            text=text,
            settings={
                "mode": mode,
                "upstream": upstream,
                "batch": batch,
                "length": length,
                "parts": parts,
                "seed": seed,
                "device": device,
            },
            count=count,
            limit=limit,
            view=view,
            metric=metric,
            data=data,
            jobs=jobs,
            backend=backend,
            store=store,
        ),
        progress=patient(),
    )
    if json_output:
        print(json.dumps(found.to_json()))
        return
    print(found.title)
    if text == "random":
        print(RANDOM)
    if found.section is not None:
        show_section(found.section, found.measured)
    elif len(found.measured.candidates) == 1:
        show_one(found.measured)
    else:
        show_many(found)
    for name, reason in found.measured.left_out.items():
        print(f"left out: {name}: {reason}")
    if found.verdict is not None:
        show_verdict(found.verdict)


def listing(json_output: bool) -> None:
    """All proxies: what they need, and where they come from."""
    from zerolm.proxies import find_proxy, proxy_names

    every = [find_proxy(name) for name in proxy_names()]
    if json_output:
        rows = [{"name": p.name, "needs": list(p.needs), "sign": p.sign, "source": p.source} for p in every]
        print(json.dumps({"proxies": rows}))
        return
    width = max(len(p.name) for p in every)
    needs = max(len(", ".join(p.needs)) for p in every)
    for p in every:
        better = "higher" if p.sign > 0 else "lower"
        print(f"{p.name:<{width}}  {', '.join(p.needs):<{needs}}  {better:<6}  {p.source}")


def show_section(section: Section, measured: Measured) -> None:
    """How every score ranks the benchmark, best first."""
    from zerolm.report.rows import by_tau
    from zerolm.report.tables import remark

    rows, lines = by_tau(section), [HEADS]
    for row in rows:
        lines.append(_cells(row, measured.seconds))
    for line, note in zip(aligned(lines), ("", *map(remark, rows)), strict=True):
        print(f"{line}  {note}".rstrip())
    for line in facts(section):
        print(line)


def _cells(row: Row, seconds: dict[str, float]) -> tuple[str, ...]:
    def show(value: float | None, form: str = ".3f") -> str:
        return "-" if value is None else f"{value:{form}}"

    def span(low: float | None, high: float | None) -> str:
        return "-" if low is None or high is None else f"{low:.3f}..{high:.3f}"

    return (
        row.label,
        show(row.tau),
        span(row.tau_low, row.tau_high),
        show(row.tau_random_ties),
        show(row.rho),
        span(row.rho_low, row.rho_high),
        "" if row.score == "body_params" else show(row.gain, "+.3f"),
        show(row.within_budget),
        f"{seconds[row.label]:.2f}" if row.label in seconds else "",
    )


def show_one(measured: Measured) -> None:
    """The values of one network."""
    lines = [("proxy", "value", "seconds")]
    for name, column in measured.columns.items():
        lines.append((name, f"{column[0]:.6g}", f"{measured.seconds[name]:.2f}"))
    for line in aligned(lines):
        print(line)


def show_many(found: Run) -> None:
    """How the values of many networks spread, and how far a proxy only counts parameters."""
    from zerolm.statistics import agreement

    lines = [("proxy", "lowest", "median", "highest", "rho with params", "seconds")]
    for name, column in found.measured.columns.items():
        low, middle, high = np.quantile(column, (0.0, 0.5, 1.0))
        rho = _rho(agreement(column, found.params).rho)
        spent = f"{found.measured.seconds[name]:.2f}"
        lines.append((name, f"{low:.5g}", f"{middle:.5g}", f"{high:.5g}", rho, spent))
    for line in aligned(lines):
        print(line)


def _rho(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.3f}"


def show_verdict(verdict: Verdict) -> None:
    print(
        f"LIBRA, by {verdict.calibration} labels: {', '.join(verdict.libra.names)}; on the other {verdict.test} "
        f"tau-b {verdict.tau:.3f}, rho {verdict.rho:.3f} (body parameters {verdict.params:.3f})"
    )


__all__ = ["Any", "Floats", "proxies"]
