"""``zerolm carve``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer

from zerolm.carving.carve import SHAPES, Wish, costs_of, plan, to_recipe, widths
from zerolm.carving.criteria import REPAIRS, WEIGHTS_ONLY, WITH_TOKENS, Additive, Criterion, criterion
from zerolm.carving.cuts import Cut
from zerolm.carving.export import card, configuration, expressible, tensors, write_child
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.cli.files import check_new, new_folder
from zerolm.cli.progress import patient
from zerolm.cli.settings import RunSettings, checked
from zerolm.cli.units import parse_amount
from zerolm.costs import COSTS
from zerolm.report.text import cost_label, show_cost

Amount = Annotated[str | None, typer.Option(metavar="AMOUNT", help="Absolute, or 0.8x of the parent's.")]
Share = Annotated[float | None, typer.Option(metavar="SHARE")]
Number = Annotated[str | None, typer.Option(metavar="N")]
Progress = Callable[[str], None]
PLANS = ("weights", "measured")
RELATIVE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*[xX]\s*")


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
    text: Annotated[
        str | None, typer.Option(metavar="FILE|random", help="Calibration text, or random tokens.")
    ] = None,
    sequences: Annotated[int, typer.Option(min=1, help="Calibration sequences.")] = 256,
    length: Annotated[int, typer.Option(min=2, help="Tokens of each.")] = 256,
    score: Annotated[
        str | None,
        typer.Option(
            "--criterion",
            help=f"From weights: {', '.join(WEIGHTS_ONLY)} (capacity without text); from tokens: "
            f"{', '.join(WITH_TOKENS)} (output_energy with text).",
        ),
    ] = None,
    repair: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(REPAIRS)} (least-squares with text)."),
    ] = None,
    plan_by: Annotated[
        str | None,
        typer.Option(
            "--plan", help="weights: by the criterion; measured: by losses of single cuts (with text)."
        ),
    ] = None,
    shape: Annotated[str, typer.Option(help=f"{' or '.join(SHAPES)}.")] = "uniform",
    multiple_of: Annotated[int | None, typer.Option(min=1, help="Of FFN widths.")] = None,
    tensor_parallel: Annotated[int, typer.Option(min=1, help="Ways that must divide heads and FFN.")] = 1,
    least_groups: Annotated[int, typer.Option(min=1, help="KV groups that every layer keeps.")] = 1,
    least_ffn: Annotated[int, typer.Option(min=1, help="Neurons that every layer keeps.")] = 1,
    context: Number = None,
    batch: Number = None,
    kv_bits: Number = None,
    bits: Number = None,
    group_size: Number = None,
    seed: Annotated[int, typer.Option(min=0, help="Of criterion random.")] = 0,
    form: Annotated[
        str,
        typer.Option(
            "--format", help="hf; or padded: layers of any size, filled with zeros to that of the largest."
        ),
    ] = "hf",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the child is written.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier child.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Cut a smaller checkpoint out of a larger one, write it, reopen it and compare.

    Without --out only the plan is shown.
    """
    if out is not None:
        check_new(out, force)
    progress = patient()
    run = {"context": context, "batch": batch, "kv_bits": kv_bits, "bits": bits, "group_size": group_size}
    costs = checked(RunSettings, {name: value for name, value in run.items() if value is not None}).costs
    checkpoint = Checkpoint.open(parent)
    if out is not None and out.resolve() == checkpoint.folder.resolve():
        raise ValueError(f"output {str(out)!r} is the parent, which is never touched; name another")
    before = costs_of(checkpoint, costs)
    asked = {
        "max_params": max_params,
        "max_body_params": max_body_params,
        "max_macs": max_macs,
        "max_kv_bytes": max_kv_bytes,
        "max_weight_bytes": max_weight_bytes,
    }
    wish = Wish(
        shape,
        keep_ffn,
        keep_heads,
        keep_layers,
        budgets(asked, before),
        multiple_of,
        tensor_parallel,
        least_groups,
        least_ffn,
    )
    how = method(text, score, repair, plan_by, fixed=not wish.budgets and keep_layers is None)
    parts = parent_with(checkpoint, how, sequences, length, seed, progress)
    chosen = worth(checkpoint, how, parts, seed, progress)
    predicted: Callable[[Cut], float] | None = None
    if how.plan == "measured":
        from zerolm.carving.sensitivity import measured

        table = measured(*parts, chosen, cuttable(checkpoint), progress=progress)
        chosen, predicted = table, table.predicted
    planned = plan(checkpoint, chosen, wish, costs)
    if out is not None:
        expressible(checkpoint, planned.cut, form)
    found: dict[str, Any] = {
        "parent": parent,
        "family": checkpoint.family.name,
        "criterion": how.criterion,
        "repair": how.repair,
        "plan": how.plan,
        "shape": shape,
        "format": form,
        "costs": {"parent": before, "child": planned.costs},
        "widths": widths(planned.cut),
        "optimal": planned.optimal,
        "predicted_loss": predicted(planned.cut) if predicted else None,
        "verified": None,
    }
    if out is not None:
        found["verified"] = write(checkpoint, planned.cut, how, parts, found, form, out, force, progress)
    if json_output:
        print(json.dumps(found))
    else:
        show(found)
        if out is not None:
            print(f"wrote {out}", file=sys.stderr)


def cuttable(checkpoint: Checkpoint) -> list[str]:
    """The kinds of units that the stock class can lack."""
    can = checkpoint.family.cut
    return [kind for kind, possible in (("groups", can.heads), ("ffn", can.ffn)) if possible]


@dataclass(frozen=True)
class How:
    """By what units are chosen, and how the rest is repaired."""

    text: str | None
    criterion: str
    repair: str
    plan: str


def method(text: str | None, criterion: str | None, repair: str | None, plan: str | None, fixed: bool) -> How:
    """What was asked for, with the defaults; ``ValueError`` for what does not go together.

    Where all sizes are ``fixed`` there is nothing to plan, and nothing is measured for it.
    """
    how = How(
        text,
        criterion or ("capacity" if text is None else "output_energy"),
        repair or ("none" if text is None else "least-squares"),
        plan or ("weights" if text is None or fixed else "measured"),
    )
    if how.plan not in PLANS:
        raise ValueError(f"plan {how.plan!r} is not known; there are {', '.join(PLANS)}")
    if how.criterion not in (*WEIGHTS_ONLY, *WITH_TOKENS):
        known = ", ".join((*WEIGHTS_ONLY, *WITH_TOKENS))
        raise ValueError(f"criterion {how.criterion!r} is not known; there are {known}")
    if how.repair not in REPAIRS:
        raise ValueError(f"repair {how.repair!r} is not known; there are {', '.join(REPAIRS)}")
    needing = [how.criterion] if how.criterion in WITH_TOKENS else []
    needing += [f"repair {how.repair}"] if how.repair != "none" else []
    needing += [f"plan {how.plan}"] if how.plan == "measured" else []
    if text is None and needing:
        needs = needing[0]
        raise ValueError(f"{needs} needs tokens: give --text FILE, or --text random, which needs no data")
    return how


Parts = tuple[Any, Any]
"""The loaded parent and the calibration tokens; both None where weights suffice."""


def parent_with(
    checkpoint: Checkpoint, how: How, sequences: int, length: int, seed: int, progress: Progress
) -> Parts:
    if how.text is None:
        return None, None
    from zerolm.carving.material import open_model, tokens_of

    progress("tokenizing")
    tokens = tokens_of(checkpoint, how.text, sequences=sequences, length=length, seed=seed)
    return open_model(checkpoint), tokens


def worth(checkpoint: Checkpoint, how: How, parts: Parts, seed: int, progress: Progress) -> Criterion:
    """The criterion, with the weights or the tokens that it needs."""
    if how.criterion in WITH_TOKENS:
        from zerolm.carving.activations import importances

        return Additive(importances(*parts, how.criterion, progress=progress))
    progress("reading the weights")
    return criterion(how.criterion, checkpoint, ledger_of(checkpoint), seed=seed)


def write(
    checkpoint: Checkpoint,
    cut: Cut,
    how: How,
    parts: Parts,
    found: Mapping[str, Any],
    form: str,
    out: Path,
    force: bool,
    progress: Progress,
) -> dict[str, float]:
    """The child in a new folder, opened again and compared before the folder gets its name."""
    from zerolm.carving.material import is_decoder, open_model
    from zerolm.carving.repair import repair
    from zerolm.carving.sliced import Repaired, apply_in_memory
    from zerolm.carving.verify import compare, load

    config = configuration(checkpoint, cut)
    model, tokens = parts
    repaired = Repaired()
    if how.repair != "none":
        repaired = repair(model, cut, tokens, how.repair, progress=progress)  # type: ignore[arg-type]
        if repaired.note:
            print(f"zerolm: {repaired.note}", file=sys.stderr)
    arrays = repaired.named(checkpoint.layout.name)
    recipe = {
        "format": "zerolm-recipe",
        "version": 1,
        **{
            name: found[name]
            for name in ("parent", "family", "criterion", "repair", "plan", "shape", "costs")
        },
        "written_as": form,
        "text": getattr(tokens, "text", None),
        "seed": getattr(tokens, "seed", None),
        "ridges": {f"{role} {layer}": ridge for (layer, role), ridge in repaired.ridges.items()},
        "layers": to_recipe(cut),
    }
    with new_folder(out, force) as folder:
        progress("writing the child")
        write_child(checkpoint, config, tensors(checkpoint, cut, arrays), card(recipe), recipe, folder)
        progress("opening the child again")
        reference = apply_in_memory(model or open_model(checkpoint), cut, repaired)
        verified = compare(load(folder, is_decoder(checkpoint)), reference, exact=stored_whole(checkpoint))
    return asdict(verified)


def stored_whole(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint holds float32, so that repaired numbers are not rounded."""
    return all(tensor.dtype == "F32" for tensor in checkpoint.tensors.values())


def budgets(asked: Mapping[str, str | None], parent: Mapping[str, int]) -> dict[str, int]:
    """Amounts as integers; ``0.8x`` is a share of the parent's."""
    found = {}
    for name, value in asked.items():
        if value is None:
            continue
        share = RELATIVE.fullmatch(value)
        found[name] = int(Decimal(share[1]) * parent[name[4:]]) if share else parse_amount(name, value)
    return found


def show(found: Mapping[str, Any]) -> None:
    """What is kept, and what that costs beside the parent."""
    sizes = found["widths"]
    same = len({(size["heads"], size["kv_heads"], size["ffn"]) for size in sizes}) == 1
    for size in sizes[:1] if same else sizes:
        what = f"{len(sizes)} layers" if same else f"layer {size['layer']}"
        print(f"{what}: heads {size['heads']}, kv {size['kv_heads']}, ffn {size['ffn']}")
    parent, child = found["costs"]["parent"], found["costs"]["child"]
    for cost in COSTS:
        share = child[cost] / parent[cost] if parent[cost] else 1.0
        print(f"  {cost_label(cost):<18} {show_cost(cost, child[cost]):>10}  {share:>6.1%} of the parent's")
    if found["predicted_loss"] is not None:
        print(f"the plan's measured parts lose {found['predicted_loss']:.3g} together, before repair")
    if found["verified"]:
        difference = found["verified"]["difference"]
        print(f"verified: opened again, outputs within {difference:.2g} of the carved parent's")
