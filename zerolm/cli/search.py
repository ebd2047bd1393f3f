"""``zerolm search``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from zerolm.calibration import Calibration, calibrate, explained
from zerolm.cli.files import write_json
from zerolm.cli.flags import declared
from zerolm.cli.progress import patient
from zerolm.cli.settings import SEARCH, Objective, load_settings
from zerolm.costs import COSTS
from zerolm.groundtruth.labels import load, read_labels
from zerolm.io.folders import check_new, new_folder
from zerolm.registry import Entry
from zerolm.report.phrases import (
    certificate_sentence,
    cost_label,
    expectation_lines,
    show_cost,
    show_count,
    show_score,
)
from zerolm.scores import SCORES
from zerolm.settings import Setting
from zerolm.solvers import SearchResult
from zerolm.solvers import search as run_search
from zerolm.solvers.result import Choice
from zerolm.spaces import SPACES, SearchSpace, shape_text
from zerolm.spaces.document import to_document


def search(
    space: Annotated[str | None, typer.Argument(help="A search space; `zerolm spaces` lists them.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with any of these settings.")] = None,
    **flags: Any,
) -> None:
    """The best architectures of a space within budgets, with a proof that they are the best.

    `zerolm spaces NAME` shows the settings of one space with their defaults.
    """
    request = load_settings(config, {"space": space, **flags})
    objective, output = request.objective, request.output
    if output.folder:
        check_new(output.folder, output.force)
    calibrated = calibration_of(objective, request.space)
    result = run_search(
        request.space,
        calibrated.score() if calibrated else objective.score,
        budgets=request.budgets,
        costs=request.costs,
        options=objective.options,
        top=request.top,
        method=request.method,
        seed=request.seed,
        progress=patient(),
    )
    if calibrated:
        result = explained(result, calibrated)
        for warning in result.calibration["warnings"] if result.calibration else ():
            print(f"zerolm: warning: {warning}", file=sys.stderr)
    if output.folder:
        write_result(result, output.folder, output.force)
    if output.json:
        print(json.dumps(result.to_json()))
    else:
        show(result)
        if output.folder:
            stock = result.space.config(result.pick.architecture) is not None
            kind = "config.json" if stock else "architecture.json (no stock class builds it)"
            wrote = f"report.html, result.json, pick/{kind} and the best {len(result.best)}"
            print(f"wrote {output.folder}: {wrote}", file=sys.stderr)


def search_flags(plugins: bool) -> list[Setting]:
    """Return the settings that ``search`` takes as flags, those of plug-ins if they are asked for."""
    entries: list[Entry[Any]] = [*SCORES.entries(plugins), *SPACES.entries(plugins)]
    return [*SEARCH, *declared(entries, {"space", "config", *(s.name for s in SEARCH)})]


def calibration_of(objective: Objective, space: SearchSpace) -> Calibration | None:
    """Return what the labels or the calibration file that the user names say, or None."""
    if objective.labels is not None:
        fitted = calibrate(read_labels(objective.labels, space=space, metric=objective.metric))
    elif objective.calibration is not None:
        fitted = load(objective.calibration, space=space)
    else:
        return None
    return fitted


def write_result(result: SearchResult, out: Path, force: bool) -> None:
    """Return ``result.json``, ``report.html``, and a folder with the configuration of each architecture."""
    from zerolm.report.search import search_page

    with new_folder(out, force) as folder:
        write_json(folder / "result.json", result.to_json())
        (folder / "report.html").write_text(search_page(result), encoding="utf-8")
        choices = {"pick": result.pick} | {f"{i:02}": choice for i, choice in enumerate(result.best, 1)}
        for name, choice in choices.items():
            place = folder / name
            place.mkdir()
            write_json(place / "architecture.json", to_document(result.space, choice.architecture))
            stock = result.space.config(choice.architecture)
            if stock is not None:
                write_json(place / "config.json", stock)


def show(result: SearchResult) -> None:
    """Show the result for people: shapes come last in a line, for they may be long."""
    pick, best = result.pick, result.best[0]
    print(f"pick: {shape_text(pick.architecture)}")
    print("      " + ", ".join(f"{cost_label(cost)} {show_cost(cost, pick.costs[cost])}" for cost in COSTS))
    for line in expectation_lines(result):
        print(f"      {line}")
    print(certificate_sentence(result))
    more = "" if result.certificate.counts == "exact" else "at least "
    print(
        f"{more}{show_count(result.plateau.ties.value)} with the best score, "
        f"{more}{show_count(result.plateau.near_ties.value)} within 1 % of it\n"
    )
    heads = ["params", "body", "MACs", "KV cache", "weights"]
    heads += ["expected"] if pick.expected else []
    print(f"{'':>4} {result.question.score:>13} " + " ".join(f"{head:>8}" for head in heads) + "  shape")
    for rank, choice in enumerate(result.best, 1):
        print(f"{rank:>4} {show_score(choice.score):>13} {_line(choice)}")
    if result.baselines:
        print("what the baselines choose within the same budgets:")
    for names, choice in same_choices(result):
        change = 100 * (choice.score - best.score) / abs(best.score or 1.0)
        print(f"{'':>4} {change:>+12.2f}% {_line(choice)}  by {', '.join(names)}")
    for binding in result.bounds.binding:
        cost = binding.bound[4:] if binding.kind == "budget" else ""
        wider = show_cost(cost, int(binding.relaxed_to)) if cost else f"{binding.relaxed_to:g}"
        print(f"binding: {binding.bound}; at {wider} the best score would be {100 * binding.gain:+.2f} %")


def same_choices(result: SearchResult) -> list[tuple[list[str], Choice]]:
    """Return the baselines' choices, each once with the names of all that made it."""
    groups: dict[str, tuple[list[str], Choice]] = {}
    for baseline in result.baselines:
        key = json.dumps(baseline.choice.architecture.choices)
        groups.setdefault(key, ([], baseline.choice))[0].append(baseline.name)
    return list(groups.values())


def _line(choice: Choice) -> str:
    costs = " ".join(f"{show_cost(cost, choice.costs[cost]):>8}" for cost in COSTS)
    expected = f" {choice.expected.mean:>8.4g}" if choice.expected else ""
    return f"{costs}{expected}  {shape_text(choice.architecture)}"
