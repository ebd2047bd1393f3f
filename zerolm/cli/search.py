"""``zerolm search``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from zerolm.calibration import Calibration, calibrate, explained
from zerolm.cli.files import write_json
from zerolm.cli.progress import patient
from zerolm.cli.settings import SearchSettings, load_settings
from zerolm.costs import COSTS
from zerolm.groundtruth.labels import load, read_labels
from zerolm.io.folders import check_new, new_folder
from zerolm.report.phrases import (
    certificate_sentence,
    cost_label,
    expectation_lines,
    shape_text,
    show_cost,
    show_count,
    show_score,
)
from zerolm.solvers import SearchResult
from zerolm.solvers import search as run_search
from zerolm.solvers.result import Choice
from zerolm.spaces import SearchSpace
from zerolm.spaces.document import to_document

Amount = Annotated[str | None, typer.Option(metavar="AMOUNT")]
Range = Annotated[str | None, typer.Option(metavar="RANGE")]


def search(
    space: Annotated[str | None, typer.Argument(help="A search space; `zerolm spaces` lists them.")] = None,
    max_params: Amount = None,
    min_params: Amount = None,
    max_body_params: Amount = None,
    min_body_params: Amount = None,
    max_macs: Amount = None,
    min_macs: Amount = None,
    max_kv_bytes: Amount = None,
    min_kv_bytes: Amount = None,
    max_weight_bytes: Amount = None,
    min_weight_bytes: Amount = None,
    context: Annotated[str | None, typer.Option(metavar="N", help="Tokens attended to (1024).")] = None,
    batch: Annotated[str | None, typer.Option(metavar="N", help="Sequences at once (1).")] = None,
    kv_bits: Annotated[str | None, typer.Option(metavar="N", help="Bits of a cached number (16).")] = None,
    bits: Annotated[
        str | None, typer.Option(metavar="N", help="Bits of a weight of body and head (16).")
    ] = None,
    group_size: Annotated[
        str | None, typer.Option(metavar="N", help="Weights that share a scale (128).")
    ] = None,
    score: Annotated[str | None, typer.Option(help="The score to maximise (geo).")] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="FILE", help="Trained architectures of this space, CSV or JSON.")
    ] = None,
    calibration: Annotated[
        str | None, typer.Option(metavar="FILE", help="What `zerolm calibrate --out` wrote.")
    ] = None,
    alpha: Annotated[
        str | None, typer.Option(metavar="X", help="Weight of attention in score zerolm.")
    ] = None,
    init: Annotated[str | None, typer.Option(help="Initialisation that the score assumes (scaled).")] = None,
    top: Annotated[str | None, typer.Option(metavar="N", help="How many architectures to list (10).")] = None,
    method: Annotated[
        str | None, typer.Option(help="auto, exact, milp, exhaustive, nsga2 or random (auto).")
    ] = None,
    seed: Annotated[str | None, typer.Option(metavar="N", help="Seed of the sampling methods (0).")] = None,
    depth: Range = None,
    hidden: Range = None,
    head_size: Range = None,
    heads_per_kv: Range = None,
    heads: Range = None,
    ffn: Range = None,
    stacks: Range = None,
    d_embed: Range = None,
    div_val: Range = None,
    base_dim: Range = None,
    depth1: Range = None,
    depth2: Range = None,
    depth3: Range = None,
    mlp_ratio: Annotated[str | None, typer.Option(metavar="X,Y,...")] = None,
    hidden_per_depth: Annotated[str | None, typer.Option(metavar="LOW:HIGH")] = None,
    ffn_per_hidden: Annotated[str | None, typer.Option(metavar="LOW:HIGH")] = None,
    vocab: Annotated[str | None, typer.Option(metavar="N", help="Size of the vocabulary.")] = None,
    positions: Annotated[
        str | None, typer.Option(metavar="N", help="Longest sequence of the configuration.")
    ] = None,
    tied: Annotated[bool | None, typer.Option("--tied/--untied", help="Share embedding and head.")] = None,
    per_layer: Annotated[bool | None, typer.Option("--per-layer", help="Choose anew in each layer.")] = None,
    view: Annotated[str | None, typer.Option(help="View of flexibert: declared, published, trained.")] = None,
    corpus: Annotated[str | None, typer.Option(help="Corpus of gpt2 and transformer_xl.")] = None,
    size: Annotated[str | None, typer.Option(help="Supernet of autoformer: tiny, small, base.")] = None,
    classes: Annotated[str | None, typer.Option(metavar="N", help="Classes of autoformer and pit.")] = None,
    out: Annotated[str | None, typer.Option(metavar="DIR", help="Folder to write the results to.")] = None,
    force: Annotated[bool | None, typer.Option("--force", help="Replace the folder if it exists.")] = None,
    json_output: Annotated[bool | None, typer.Option("--json", help="One JSON object.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with any of these settings.")] = None,
) -> None:
    """The best architectures of a space within budgets, with a proof that they are the best."""
    flags = {name: value for name, value in locals().items() if name not in ("config", "json_output")}
    settings = load_settings(config, {**flags, "json": json_output})
    if settings.out is not None and not settings.out.strip():
        raise ValueError("out names no folder")
    if settings.out:
        check_new(Path(settings.out), settings.force)
    space_asked = settings.make_space()
    calibrated = calibration_of(settings, space_asked)
    result = run_search(
        space_asked,
        calibrated.score() if calibrated else settings.score,
        budgets=settings.budgets,
        costs=settings.costs,
        options=settings.options,
        top=settings.top,
        method=settings.method,
        seed=settings.seed,
        progress=patient(),
    )
    if calibrated:
        result = explained(result, calibrated)
    if settings.out:
        write_result(result, Path(settings.out), settings.force)
    if settings.json_output:
        print(json.dumps(result.to_json()))
    else:
        show(result)
        if settings.out:
            stock = result.space.config(result.pick.architecture) is not None
            kind = "config.json" if stock else "architecture.json (no stock class builds it)"
            wrote = f"report.html, result.json, pick/{kind} and the best {len(result.best)}"
            print(f"wrote {settings.out}: {wrote}", file=sys.stderr)


def calibration_of(settings: SearchSettings, space: SearchSpace) -> Calibration | None:
    """What the labels or the calibration file that the user names say, or None."""
    if settings.labels is not None:
        found = calibrate(read_labels(Path(settings.labels), space=space))
    elif settings.calibration is not None:
        found = load(Path(settings.calibration), space=space)
    else:
        return None
    for warning in found.warnings:
        print(f"zerolm: warning: {warning}", file=sys.stderr)
    return found


def write_result(result: SearchResult, out: Path, force: bool) -> None:
    """``result.json``, ``report.html``, and a folder with the configuration of each architecture."""
    from zerolm.report.search import report

    with new_folder(out, force) as folder:
        write_json(folder / "result.json", result.to_json())
        (folder / "report.html").write_text(report(result), encoding="utf-8")
        choices = {"pick": result.pick} | {f"{i:02}": choice for i, choice in enumerate(result.best, 1)}
        for name, choice in choices.items():
            place = folder / name
            place.mkdir()
            write_json(place / "architecture.json", to_document(result.space, choice.architecture))
            stock = result.space.config(choice.architecture)
            if stock is not None:
                write_json(place / "config.json", stock)


def show(result: SearchResult) -> None:
    """The result for people: shapes come last in a line, for they may be long."""
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
    """The baselines' choices, each once with the names of all that made it."""
    groups: dict[str, tuple[list[str], Choice]] = {}
    for baseline in result.baselines:
        key = json.dumps(baseline.choice.architecture.choices)
        groups.setdefault(key, ([], baseline.choice))[0].append(baseline.name)
    return list(groups.values())


def _line(choice: Choice) -> str:
    costs = " ".join(f"{show_cost(cost, choice.costs[cost]):>8}" for cost in COSTS)
    expected = f" {choice.expected.mean:>8.4g}" if choice.expected else ""
    return f"{costs}{expected}  {shape_text(choice.architecture)}"
