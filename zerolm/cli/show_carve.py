"""The terminal's view of a carving."""

from __future__ import annotations

from zerolm.api.carve import CarvingReport
from zerolm.cli.tables import show_table, show_text
from zerolm.costs import COSTS
from zerolm.report.phrases import cost_label, show_cost
from zerolm.report.width import width_line, width_rows


def show(result: CarvingReport) -> None:
    """Print the kept sizes, their costs beside the parent's, and for a plan what other widths would keep."""
    sizes = result.widths
    same = len({(size["heads"], size["kv_heads"], size["ffn"]) for size in sizes}) == 1
    for size in sizes[:1] if same else sizes:
        place = f"{len(sizes)} layers" if same else f"layer {size['layer']}"
        print(f"{place}: heads {size['heads']}, kv {size['kv_heads']}, ffn {size['ffn']}")
    if width := width_line(result.document):
        show_text(width)
    _show_costs(result)
    for line in result.judged():
        print(line)
    if result.verified is None:
        _show_widths(result)


def _show_widths(result: CarvingReport) -> None:
    rows = width_rows(result.document)
    if not rows:
        return
    measured = any(row.loss is not None for row in rows)
    body = [[*row.texts[: 3 if measured else 2], "chosen" if row.is_chosen else ""] for row in rows]
    print("the stream alone, all else whole" + (", nothing repaired:" if measured else ":"))
    show_table(["hidden", "energy kept", *(["loss"] if measured else []), ""], body, remarks=True)


def _show_costs(result: CarvingReport) -> None:
    costs = result.costs
    parent, child = costs["parent"], costs["child"]
    bits = " and ".join(map(str, result.document["weight_bits"]))
    for cost in COSTS:
        share = child[cost] / parent[cost] if parent[cost] else 1.0
        label = cost_label(cost) + (f", {bits}-bit" if cost == "weight_bytes" else "")
        print(f"  {label:<18} {show_cost(cost, child[cost]):>10}  {share:>6.1%} of the parent's")
    if "stored" in costs:
        share = costs["stored"]["params"] / parent["params"]
        print(f"stored with zeros, for evaluation: {share:.1%} of the parent's parameters")
