"""The terminal's view of a diagnosis."""

from __future__ import annotations

from zerolm.api.doctor import DoctorReport
from zerolm.cli.tables import show_table, show_text
from zerolm.report.phrases import show_amount


def show(result: DoctorReport) -> None:
    """Print a line for each runtime, the facts, and the advice."""
    facts = result.document
    rows = [
        [row["runtime"], row["verdict"], row["known"], "; ".join(row["reasons"])] for row in facts["runtimes"]
    ]
    show_table(["runtime", "verdict", "by", "reasons"], rows, remarks=True)
    if facts["tensors"]:
        kinds, size = ", ".join(facts["dtypes"]), show_amount(facts["bytes"], size=True)
        print()
        show_text(f"{facts['weights']:,} weights in {facts['tensors']} tensors of {kinds}: {size}")
    for line in facts["advice"]:
        show_text(line)
    show_text("by rules: configuration, names and shapes; nothing was run, no weight was read")
