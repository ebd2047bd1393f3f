"""The terminal's view of labels from training."""

from __future__ import annotations

from typing import Final

from zerolm.api.label_training import LabelsReport
from zerolm.cli.tables import show_table, show_text
from zerolm.report.phrases import show_amount

SHOWN: Final = 20


def show(result: LabelsReport) -> None:
    """Print the architectures with the lowest losses, what counts of parameters say of them, the noise."""
    head, best, worst, *others = result.lines()
    print(head)
    rows = sorted(result.document["rows"], key=lambda row: row["loss"])
    body = [
        [
            row["shape"],
            show_amount(row["params"]),
            show_amount(row["body_params"]),
            f"{row['loss']:.4f}",
            f"{row['seconds']:.0f}",
        ]
        for row in rows[:SHOWN]
    ]
    show_table(["", "parameters", "body", "loss", "seconds"], body)
    if len(rows) > SHOWN:
        show_text(f"and {len(rows) - SHOWN} more; {best}; {worst}")
    for line in others:
        show_text(line)
