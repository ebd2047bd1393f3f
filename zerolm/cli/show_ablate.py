"""The terminal's view of an ablation."""

from __future__ import annotations

from zerolm.api.ablate import AblationReport
from zerolm.cli.tables import show_table, show_text
from zerolm.report.ablation import NOTES, Sheet, sheets, title, transfer_sheets
from zerolm.report.ablation_conclusions import conclusions


def show(result: AblationReport) -> None:
    """Print the tables of each benchmark, the borrowed alphas, and what all of it says."""
    ablation = result.ablation
    for section in ablation.sections:
        print(f"\n{title(section)}")
        for sheet in sheets(ablation, section):
            show_sheet(sheet)
    for sheet in transfer_sheets(ablation):
        show_sheet(sheet)
    for line in (*NOTES, *conclusions(ablation).values()):
        print()
        show_text(line)


def show_sheet(sheet: Sheet) -> None:
    """Print a table under its title, and what it says."""
    print(f"\n{sheet.title}")
    show_table(sheet.head, sheet.rows)
    for sentence in sheet.sentences:
        show_text(sentence)
