"""What ZeroLM's score hangs on, on every benchmark: ``python benchmarks/ablation.py``.

Writes ``ablation.md`` from the benchmarks in ``ZEROLM_DATA`` (or --data), in some ten seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from timing import note

from zerolm.groundtruth.reader import chosen
from zerolm.lab.ablation.ablate import ablate
from zerolm.lab.verbs.ablate_report import NOTES, AblationReport, about, section_tables
from zerolm.show.sheet import Sheet, as_cell

PLACE = Path(__file__).with_suffix(".md")


def document(report: AblationReport) -> Iterator[str]:
    """The lines of the file: what is shown first, then how to read the tables, then the tables."""
    yield "# What ZeroLM's score hangs on\n"
    yield "Written by `python benchmarks/ablation.py`; `zerolm lab ablate` prints the same.\n"
    yield from lines(report.shown())
    yield "## How to read the tables\n"
    for name, text in NOTES.items():
        yield f"- {name}: {marked(text)}"
    yield "\n## One alpha for another\n"
    for sheet in report.borrowed():
        yield from lines(sheet)
    for section in report.sections:
        yield f"## {section.title}: {about(section)}\n"
        for sheet in section_tables(section):
            yield from lines(sheet)


def lines(sheet: Sheet) -> Iterator[str]:
    """A Markdown table under its title, the first column left, the others right."""
    yield f"{marked(sheet.title)}\n"
    head = [as_cell(cell).text for cell in sheet.head]
    yield f"| {' | '.join('' if name == 'variant' else name for name in head)} |"
    yield "|---|" + "---:|" * (len(sheet.head) - 1)
    for row in sheet.rows:
        yield f"| {' | '.join(marked(as_cell(cell).text) for cell in row)} |"
    yield ""


def marked(text: str) -> str:
    """Text in which Markdown sees no marks of its own."""
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", help="folder of benchmark files; else ZEROLM_DATA, else the cache")
    data = parser.parse_args().data
    report = AblationReport(ablate(chosen([], data, every=True), data=data, progress=note))
    unfinished = PLACE.with_suffix(".md.part")
    unfinished.write_text("\n".join(document(report)).rstrip() + "\n", encoding="utf-8")
    unfinished.replace(PLACE)


if __name__ == "__main__":
    main()
