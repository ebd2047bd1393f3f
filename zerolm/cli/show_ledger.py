"""The terminal's view of a ledger."""

from __future__ import annotations

from typing import Any

from zerolm.api.ledger import LedgerReport
from zerolm.report.phrases import show_amount


def show(result: LedgerReport) -> None:
    """Print a line for each layer, the totals, and where all this is kept."""
    summary = result.document
    columns = f"{'energy':>10} {'mean square':>11} {'largest':>8} {'strongest':>10}"
    print(f"{'':5} {'attention':^42}  {'FFN':^42}".rstrip())
    print(f"{'layer':5} {columns}  {columns}")
    for layer in summary["layers"]:
        attention, ffn = layer["attention"], layer["ffn"]
        group, half = _share(attention["strongest_group"]), _share(ffn["strongest_half"])
        print(f"{layer['layer']:>5} {_numbers(attention)} {group:>10}  {_numbers(ffn)} {half:>10}")
    total = summary["total"]
    print(f"{'all':>5} {_numbers(total['attention'])} {'':>10}  {_numbers(total['ffn'])}")
    print(f"strongest: of {summary['kv_groups']} KV groups one; of the FFN neurons half")
    whole = total["all"]
    print(f"\n{whole['weights']:,} weights, energy {whole['energy']:.6g}, largest {whole['largest']:.4g}")
    source = "kept from before" if summary["from_cache"] else "one pass over the files"
    checked = ", content compared" if summary["verified"] else ""
    print(f"{show_amount(summary['bytes'], size=True)}, {source}{checked}: {summary['seconds']:.2f} s")
    print(f"the ledger is in {summary['kept']}")


def _numbers(part: dict[str, Any]) -> str:
    return f"{part['energy']:>10.5g} {part['mean_square']:>11.3g} {part['largest']:>8.3g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
