"""The task of ``subnets.py``: first sentences of docstrings, and the library that each is of.

``pyenc`` learns it with ``examples/classify_texts.py``. Libraries are those that are installed here; files,
not sentences, are held out, so that no sentence of a file that is judged on was trained on.
"""

from __future__ import annotations

import csv
import hashlib
import random
import sysconfig
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Final

from corpus import docstrings

LIBRARIES: Final = (
    *("matplotlib", "networkx", "pandas", "scipy"),
    *("scikit-learn", "sympy", "torch", "transformers"),
)
FOLDERS: Final = {"scikit-learn": "sklearn"}
TRAINED: Final = 1_500
"""Sentences of a library to train on, at most."""
JUDGED: Final = 75
"""Sentences of a library in each of the two sets to judge on."""
HELD: Final = 5
"""One in so many files is held out; every other of these goes to the first set, the others to the second."""

Row = tuple[str, str]


def rows() -> dict[str, list[Row]]:
    """Return (text, library) of the sets ``trained``, ``first`` and ``second``."""
    sets: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    seen: set[str] = set()
    for library in LIBRARIES:
        root = Path(sysconfig.get_path("purelib")) / FOLDERS.get(library, library)
        files = sorted(file for file in root.rglob("*.py") if "tests" not in file.parts)
        random.Random(0).shuffle(files)
        for place, file in enumerate(files):
            name = "trained" if place % HELD else ("first", "second")[place // HELD % 2]
            for one in docstrings([file]):
                if one.summary not in seen and len(one.summary) < 300:
                    seen.add(one.summary)
                    sets[name][library].append((one.summary, library))
    limits = {"trained": TRAINED, "first": JUDGED, "second": JUDGED}
    return {
        name: mixed([row for some in by_library.values() for row in some[: limits[name]]])
        for name, by_library in sets.items()
    }


def mixed(rows: list[Row]) -> list[Row]:
    """Return rows in an order that is as good as drawn, and the same everywhere."""
    return sorted(rows, key=lambda row: hashlib.sha256(row[0].encode()).digest())


def versions() -> str:
    """Return the libraries with their versions."""
    return ", ".join(f"{library} {version(library)}" for library in LIBRARIES)


def write_rows(file: Path, some: list[Row]) -> Path:
    """Write rows as a table with the columns ``text`` and ``label``."""
    with file.open("w", encoding="utf-8", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(["text", "label"])
        writer.writerows(some)
    return file
