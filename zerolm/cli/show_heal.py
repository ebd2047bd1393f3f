"""The terminal's view of a healing."""

from __future__ import annotations

from zerolm.api.heal import HealingReport
from zerolm.cli.tables import show_table, show_text
from zerolm.report.healing import loss_rows


def show(result: HealingReport) -> None:
    """Print the losses before and after beside the parent's, and how the child was trained."""
    first, *_, held, proof = result.lines()
    show_text(first)
    names, rows = loss_rows(result.document)
    show_table(["", *names], rows)
    show_text(held)
    print(proof)
