"""The table of families in the documentation is that of today."""

from __future__ import annotations

import sys
from pathlib import Path

from zerolm.families.known import described

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
from family_table import PAGE, renewed, table  # noqa: E402


def test_the_page_has_the_table_of_today() -> None:
    page = PAGE.read_text("utf-8")
    assert page == renewed(page), "run python docs/family_table.py"


def test_every_family_has_a_row_and_every_number_a_reason() -> None:
    lines = table().split("\n")
    rows = [line for line in lines if line.startswith("| ")][1:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == list(described())
    assert {len(row.split(" | ")) for row in rows} == {9}
    reasons = [line for line in lines if line[:1].isdigit()]
    used = {int(part.split("]")[0]) for row in rows for part in row.split("[")[1:]}
    assert used == set(range(1, len(reasons) + 1))
