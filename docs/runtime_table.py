"""The tables of runtimes in runtimes.md: ``python docs/runtime_table.py`` writes them again.

What each runtime lists, of which version and when, is what ``zerolm/diagnosis/runtimes.json`` says.
"""

from __future__ import annotations

from pathlib import Path

from zerolm.diagnosis.runtimes import RUNTIMES, UNREAD, Runtime
from zerolm.families.family import Family
from zerolm.families.known import families

PAGE = Path(__file__).parent / "runtimes.md"
BEFORE, AFTER = "<!-- tables of runtimes -->", "<!-- end of the tables of runtimes -->"


def sources() -> str:
    """Return the table of lists: version, days, source, how many names."""
    rows = ["| runtime | list of | released | read | names | source |", "|---|---|---|---|---|---|"]
    for name, one in RUNTIMES.items():
        kind = "model types" if one.by == "model_type" else "classes"
        source = one.source
        cells = [name, source.version, source.released or "not stated", source.read]
        cells += [f"{len(one.names)} {kind}", source.files.replace("*", r"\*")]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def listed() -> str:
    """Return the table of families: what lists each, and where its head size or FFN is derived."""
    rows = [f"| family | {' | '.join(RUNTIMES)} |", f"|---{'|---' * len(RUNTIMES)}|"]
    for name, family in families().items():
        rows.append(f"| {name} | {' | '.join(_cell(one, family) for one in RUNTIMES.values())} |")
    return "\n".join(rows)


def _cell(runtime: Runtime, family: Family) -> str:
    if not runtime.of_family(family):
        return "unknown"
    head_size, field = runtime.head_size(family), family.config.sizes.get("head_size")
    notes = ["FFN = 4 x hidden"] if runtime.derives_ffn(family) else []
    if head_size == "derived":
        notes.append("head size = hidden / heads")
    if head_size == UNREAD and field is not None and field.field:
        notes.append("other head sizes unknown")
    return f"yes: {', '.join(notes)}" if notes else "yes"


def renewed(page: str) -> str:
    """Return the page with the tables of today."""
    before, _, rest = page.partition(BEFORE)
    _, _, after = rest.partition(AFTER)
    return f"{before}{BEFORE}\n\n{sources()}\n\n{listed()}\n\n{AFTER}{after}"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text("utf-8")), "utf-8")
