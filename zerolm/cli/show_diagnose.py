"""The terminal's view of a diagnosis."""

from __future__ import annotations

from zerolm.api.doctor import DoctorReport
from zerolm.report.phrases import show_amount


def show(result: DoctorReport) -> None:
    """Print a line for each runtime, the facts, and the advice."""
    facts = result.document
    width = max(len(row["runtime"]) for row in facts["runtimes"])
    for row in facts["runtimes"]:
        reasons = "; ".join(row["reasons"])
        print(f"{row['runtime']:<{width}}  {row['verdict']:<7}  {row['known']:<6}  {reasons}")
    if facts["tensors"]:
        kinds, size = ", ".join(facts["dtypes"]), show_amount(facts["bytes"], size=True)
        print(f"\n{facts['weights']:,} weights in {facts['tensors']} tensors of {kinds}: {size}")
    for line in facts["advice"]:
        print(line)
    print("by rules: configuration, names and shapes; nothing was run, no weight was read")
