"""The table of families in families.md: ``python docs/family_table.py`` writes it again.

What can be cut and what is written as GGUF is what documents say, and tests prove it family by family
(tests/families). What is healed is what benchmarks/families.md measured.
"""

from __future__ import annotations

import re
from pathlib import Path

from zerolm.families.family import Family
from zerolm.families.known import described

HERE = Path(__file__).parent
PAGE = HERE / "families.md"
HEALED = HERE.parent / "benchmarks" / "families.md"
BEFORE, AFTER = "<!-- table of families -->", "<!-- end of the table of families -->"
KINDS = ("layers", "ffn", "heads", "hidden")


def healed() -> set[str]:
    """Return the families that came nearer to their parents."""
    rows = re.findall(r"^\| (\S+) \|.*\| yes \|.*$", HEALED.read_text("utf-8"), flags=re.MULTILINE)
    return set(rows)


def table() -> str:
    """Return the table: what is proven of each family, and why the rest is refused."""
    notes: list[str] = []
    learnt = healed()
    head = "| family | counted | layers | FFN | heads | hidden | GGUF | types | heal |"
    rows = [head, "|---" * head.count(" | ") + "|---|"]
    for name, family in described().items():
        cells = ["proven", *(_cell(family, kind, notes) for kind in KINDS)]
        cells.append(f"`{family.gguf.architecture}`" if family.gguf else "no")
        cells.append("no" if family.gguf is None else "proven")
        part = f"as {family.module_names.text_type or 'its text'}"
        cells.append("proven" if name in learnt else part if family.config.at else "not done")
        rows.append(f"| {name} | {' | '.join(cells)} |")
    reasons = [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    return "\n".join([*rows, "", "Refused, because", "", *reasons])


def _cell(family: Family, kind: str, notes: list[str]) -> str:
    """Return whether a cut is proven, or the number of the reason why it is refused."""
    if getattr(family.cut, kind):
        return "proven"
    return _numbered(family.cut.hidden_note if kind == "hidden" else family.cut.note, notes)


def _numbered(note: str, notes: list[str]) -> str:
    if note not in notes:
        notes.append(note)
    return f"[{notes.index(note) + 1}](#table)"


def renewed(page: str) -> str:
    """Return the page with the table of today."""
    before, _, rest = page.partition(BEFORE)
    _, _, after = rest.partition(AFTER)
    return f"{before}{BEFORE}\n\n{table()}\n\n{AFTER}{after}"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text("utf-8")), "utf-8")
