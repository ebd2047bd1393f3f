"""The terminal's view of a ledger."""

from __future__ import annotations

from typing import Any, Final

from zerolm.api.ledger import LedgerReport
from zerolm.cli.tables import show_table, show_text
from zerolm.report.phrases import show_amount

HEADS: Final = ("energy", "mean square", "largest", "strongest")


def show(result: LedgerReport) -> None:
    """Print a line for each layer, the totals, and where all this is kept."""
    summary = result.document
    total, rows = summary["total"], []
    for layer in summary["layers"]:
        attention, ffn = layer["attention"], layer["ffn"]
        group, half = _share(attention["strongest_group"]), _share(ffn["strongest_half"])
        rows.append([str(layer["layer"]), *_numbers(attention), group, *_numbers(ffn), half])
    rows.append(["all", *_numbers(total["attention"]), "", *_numbers(total["ffn"]), ""])
    show_table(["layer", *(f"{part} {head}" for part in ("attn", "FFN") for head in HEADS)], rows)
    show_text(f"strongest: of {summary['kv_groups']} KV groups one; of the FFN neurons half")
    whole = total["all"]
    print()
    show_text(f"{whole['weights']:,} weights, energy {whole['energy']:.6g}, largest {whole['largest']:.4g}")
    source = "kept from before" if summary["from_cache"] else "one pass over the files"
    checked = ", content compared" if summary["verified"] else ""
    show_text(f"{show_amount(summary['bytes'], size=True)}, {source}{checked}: {summary['seconds']:.2f} s")
    show_text(f"the ledger is in {summary['kept']}")


def _numbers(part: dict[str, Any]) -> list[str]:
    return [f"{part['energy']:.5g}", f"{part['mean_square']:.3g}", f"{part['largest']:.3g}"]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
