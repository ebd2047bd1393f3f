"""The terminal's view of a supernet's training."""

from __future__ import annotations

from zerolm.api.train_supernet import SupernetReport
from zerolm.cli.tables import show_table, show_text
from zerolm.report.supernet import kind_name


def show(result: SupernetReport) -> None:
    """Print how the loss fell, and the FFN widths after the last epoch."""
    for line in result.lines():
        show_text(line)
    kinds = [kind_name(*kind) for kind in result.document["kinds"]]
    rows = [[str(place), *map(str, line)] for place, line in enumerate(result.history[-1]["widths"], 1)]
    show_table(["layer", *kinds], rows)
