"""``zerolm carve``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from zerolm.carving.carve import carve as run_carve
from zerolm.carving.carve import rebuild
from zerolm.carving.export.formats import FORMATS
from zerolm.carving.importance.criteria import WEIGHTS_ONLY, WITH_TOKENS
from zerolm.carving.planning.lonas import SPACES
from zerolm.carving.planning.part_costs import StoredCosts
from zerolm.carving.repair.rules import REPAIRS
from zerolm.carving.request import SHAPES
from zerolm.carving.result import Carved
from zerolm.cli.older import cost_model
from zerolm.cli.progress import patient
from zerolm.costs import COSTS
from zerolm.report.phrases import cost_label, show_cost
from zerolm.settings.units import parse_amount, parse_share

Amount = Annotated[str | None, typer.Option(metavar="AMOUNT", help="Absolute, or 0.8x of the parent's.")]
Share = Annotated[float | None, typer.Option(metavar="SHARE")]
Number = Annotated[str | None, typer.Option(metavar="N")]
TEXT = "Calibration text, or random tokens."
CRITERION = (
    f"From weights: {', '.join(WEIGHTS_ONLY)} (capacity without text); from tokens: "
    f"{', '.join(WITH_TOKENS)} (output_energy with text)."
)
REPAIR = f"{', '.join(REPAIRS)} (least-squares with text)."
PLAN = "weights: by the criterion; measured: by losses of single cuts (with text); heuristic: of a --space."
RECIPE = "Build the child of a recipe.json again; it takes the place of budgets, widths and methods."


def carve(
    parent: Annotated[str, typer.Argument(help="A folder with a checkpoint, or a model of the hub.")],
    max_params: Amount = None,
    max_body_params: Amount = None,
    max_macs: Amount = None,
    max_kv_bytes: Amount = None,
    max_weight_bytes: Amount = None,
    keep_ffn: Share = None,
    keep_heads: Share = None,
    keep_layers: Share = None,
    text: Annotated[str | None, typer.Option(metavar="FILE|random", help=TEXT)] = None,
    sequences: Annotated[int, typer.Option(min=1, help="Calibration sequences.")] = 256,
    length: Annotated[int, typer.Option(min=2, help="Tokens of each.")] = 256,
    criterion: Annotated[str | None, typer.Option(help=CRITERION)] = None,
    repair: Annotated[str | None, typer.Option(help=REPAIR)] = None,
    plan: Annotated[str | None, typer.Option(help=PLAN)] = None,
    shape: Annotated[
        str | None, typer.Option(help=f"{' or '.join(SHAPES)}; uniform without --space.")
    ] = None,
    space: Annotated[str | None, typer.Option(help=f"Sizes and costs of {', '.join(SPACES)}.")] = None,
    multiple_of: Annotated[int | None, typer.Option(min=1, help="Of FFN widths.")] = None,
    tensor_parallel: Annotated[int, typer.Option(min=1, help="Ways that must divide heads and FFN.")] = 1,
    least_groups: Annotated[int, typer.Option(min=1, help="KV groups that every layer keeps.")] = 1,
    least_ffn: Annotated[int, typer.Option(min=1, help="Neurons that every layer keeps.")] = 1,
    context: Number = None,
    batch: Number = None,
    kv_bits: Number = None,
    bits: Number = None,
    group_size: Number = None,
    seed: Annotated[int, typer.Option(min=0, help="Of random tokens and criterion random.")] = 0,
    form: Annotated[
        str | None, typer.Option("--format", help=f"{', '.join(FORMATS)}; hf unless a recipe says other.")
    ] = None,
    recipe: Annotated[Path | None, typer.Option(metavar="FILE", help=RECIPE)] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the child is written.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier child.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Cut a smaller checkpoint out of a larger one, write it, reopen it and compare.

    Without --out only the plan is shown. A carving that was killed goes on when it is started again.
    """
    run = {"context": context, "batch": batch, "kv_bits": kv_bits, "bits": bits, "group_size": group_size}
    costs = cost_model(run)
    if bits is None and group_size is None:
        costs = StoredCosts(costs.context, costs.batch, costs.kv_bits)
    asked = {
        "max_params": max_params,
        "max_body_params": max_body_params,
        "max_macs": max_macs,
        "max_kv_bytes": max_kv_bytes,
        "max_weight_bytes": max_weight_bytes,
    }
    request: dict[str, Any] = {
        "budgets": {name: _amount(name, value) for name, value in asked.items() if value is not None} or None,
        "keep_ffn": keep_ffn,
        "keep_heads": keep_heads,
        "keep_layers": keep_layers,
        "criterion": criterion,
        "repair": repair,
        "plan": plan,
        "multiple_of": multiple_of,
        "shape": shape,
        "space": space,
    }
    common: dict[str, Any] = {
        "text": text, "costs": costs, "force": force, "progress": patient()
    }  # fmt: skip
    if recipe is not None:
        given = next((name for name, value in request.items() if value is not None), None)
        if given is not None:
            raise ValueError(
                f"a recipe says all of the child: {given.replace('_', '-')} cannot stand beside it"
            )
        carved = rebuild(recipe, parent, out, form=form, **common)
    else:
        carved = run_carve(
            parent,
            out,
            **request,
            **common,
            sequences=sequences,
            length=length,
            tensor_parallel=tensor_parallel,
            least_groups=least_groups,
            least_ffn=least_ffn,
            seed=seed,
            form=form or "hf",
        )
    if carved.note:
        print(f"zerolm: {carved.note}", file=sys.stderr)
    if json_output:
        print(json.dumps(carved.to_json()))
        return
    show(carved)
    if out is not None:
        print(f"wrote {out}", file=sys.stderr)


def _amount(name: str, value: str) -> int | str:
    return parse_share(value) or parse_amount(name, value)


def show(carved: Carved) -> None:
    """Print the kept sizes, and their costs beside the parent's."""
    sizes = carved.widths
    same = len({(size["heads"], size["kv_heads"], size["ffn"]) for size in sizes}) == 1
    for size in sizes[:1] if same else sizes:
        place = f"{len(sizes)} layers" if same else f"layer {size['layer']}"
        print(f"{place}: heads {size['heads']}, kv {size['kv_heads']}, ffn {size['ffn']}")
    _show_costs(carved.costs, carved.weight_bits)
    losses = [f"{name} {loss:.3g}" for name, loss in carved.losses.items()]
    if losses:
        print(f"loss on the calibration text: {', '.join(losses)}")
    if carved.verified:
        difference = carved.verified["difference"]
        print(f"verified: opened again, outputs within {difference:.2g} of the carved parent's")


def _show_costs(costs: Mapping[str, Mapping[str, int]], bits: list[int]) -> None:
    parent, child = costs["parent"], costs["child"]
    for cost in COSTS:
        share = child[cost] / parent[cost] if parent[cost] else 1.0
        width = f", {' and '.join(map(str, bits))}-bit" if cost == "weight_bytes" else ""
        label = cost_label(cost) + width
        print(f"  {label:<18} {show_cost(cost, child[cost]):>10}  {share:>6.1%} of the parent's")
    if "stored" in costs:
        share = costs["stored"]["params"] / parent["params"]
        print(f"stored with zeros, for evaluation: {share:.1%} of the parent's parameters")
