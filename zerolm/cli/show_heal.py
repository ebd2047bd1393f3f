"""The terminal's view of a healing."""

from __future__ import annotations

from zerolm.api.heal import HealingReport
from zerolm.cli.tables import show_table, show_text
from zerolm.report.healing import shown_loss


def show(result: HealingReport) -> None:
    """Print the losses before and after beside the parent's, and how the child was trained."""
    first, *_, held, proof = result.lines()
    show_text(first)
    losses = result.losses
    names = list(losses["before"])
    rows = [
        [words, *(shown_loss(name, losses[who][name]) for name in names)]
        for who, words in (("before", "child, before"), ("after", "child, after"), ("parent", "parent"))
    ]
    show_table(["", *names], rows)
    show_text(held)
    print(proof)
