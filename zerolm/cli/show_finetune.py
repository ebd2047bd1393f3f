"""The terminal's view of a fine-tuning."""

from __future__ import annotations

from zerolm.api.finetune import FinetuningReport
from zerolm.cli.tables import show_table, show_text
from zerolm.report.finetuning import measure_rows


def show(result: FinetuningReport) -> None:
    """Print the measures before and after, beside the baseline and the teacher."""
    show_text(result.lines()[0])
    names, rows = measure_rows(result.document)
    show_table(["", *names], rows)
