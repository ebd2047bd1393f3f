"""The numbers in the documentation: ``python docs/measured.py`` writes them again after a measurement.

Below a paragraph, an item or a table stands a comment that names its numbers in order:

    <!-- measured: blocks_better=0; worth_1=114% -->

``evidence.facts()`` has them by these names. A name without a value stands for the whole table above it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from evidence import facts  # noqa: E402
from evidence_tables import tables  # noqa: E402

PAGES = [HERE.parent / "README.md", *sorted(HERE.rglob("*.md"))]
COMMENT = re.compile(r"^ *<!-- measured:\s(?P<names>.*?)\s-->\n", flags=re.DOTALL | re.MULTILINE)


def renewed(page: str, values: Mapping[str, str]) -> str:
    """Return a page with the numbers of today; ``LookupError`` where one is not above its comment."""
    parts, end = [], 0
    for comment in COMMENT.finditer(page):
        start = max(end, page.rfind("\n\n", end, comment.start()))
        passage, names = page[start : comment.start()], comment[0]
        place = 0
        for name, _, old in (pair.partition("=") for pair in re.split(r";\s+", comment["names"])):
            new = values[name]
            passage, place = (_number if old else _table)(passage, place, old, new)
            names = names.replace(f"{name}={old}", f"{name}={new}", 1)
        parts += [page[end:start], passage, names]
        end = comment.end()
    return "".join([*parts, page[end:]])


def values() -> dict[str, str]:
    """Return every number and every table of today by its name."""
    return facts() | tables()


def _number(passage: str, place: int, old: str, new: str) -> tuple[str, int]:
    """Return a passage with the first old number after a place replaced, and where the new one ends."""
    words = r"\s+".join(map(re.escape, old.split()))
    match = re.compile(rf"(?<!\w)(?<!\d[.,]){words}(?!\w|[.,]\d)").search(passage, place)
    if match is None:
        raise LookupError(f"{old!r} is not in its place in {' '.join(passage.split())[:200]!r}")
    written = match[0] if new == old else new
    return passage[: match.start()] + written + passage[match.end() :], match.start() + len(written)


def _table(passage: str, place: int, old: str, new: str) -> tuple[str, int]:
    """Return a passage with the table at its end replaced."""
    head = re.sub(r"(?:^\|.*\n)+\Z", "", passage, flags=re.MULTILINE)
    return f"{head}{new}\n", place


def main() -> None:
    """Write the numbers of today into every page."""
    for page in PAGES:
        text = page.read_text("utf-8")
        page.write_text(renewed(text, values()), encoding="utf-8")


if __name__ == "__main__":
    main()
