"""Python's standard library as text: what the two small models are trained on, and what they never see.

Figures that are to be compared need the same Python: its version is part of what was measured.
"""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

UNSEEN: Final = tuple(
    """
    _markupbase.py _sitebuiltins.py _strptime.py _weakrefset.py ast.py chunk.py codecs.py doctest.py
    functools.py graphlib.py imaplib.py pickletools.py py_compile.py selectors.py signal.py
    stringprep.py symtable.py tokenize.py traceback.py uu.py distutils/__init__.py distutils/dep_util.py
    distutils/command/__init__.py distutils/command/build_py.py distutils/command/build_scripts.py
    distutils/command/config.py distutils/command/install_lib.py asyncio/events.py asyncio/locks.py
    xml/dom/minidom.py xml/sax/saxutils.py dbm/__init__.py unittest/case.py unittest/signals.py
    unittest/util.py importlib/metadata/_itertools.py multiprocessing/popen_forkserver.py
    multiprocessing/synchronize.py curses/__init__.py curses/ascii.py tkinter/colorchooser.py
    turtledemo/clock.py turtledemo/peace.py turtledemo/planet_and_moon.py wsgiref/handlers.py
    wsgiref/simple_server.py wsgiref/util.py email/generator.py email/header.py email/parser.py
    email/mime/image.py sqlite3/__init__.py
    """.split()  # noqa: SIM905, one name after another is easier to compare
)
"""Modules held out of all training, relative to the library's folder: for judging, never for calibration."""
LEFT_OUT: Final = {"site-packages", "dist-packages", "test", "tests", "encodings", "pydoc_data"}
"""Folders that are not the library itself, or are tables."""


@dataclass(frozen=True, slots=True)
class Documented:
    """A function or class: the first sentence of its docstring, all of that, its source without it."""

    summary: str
    docstring: str
    source: str


def library() -> Path:
    """The folder of the standard library of the Python that runs this."""
    return Path(sysconfig.get_path("stdlib"))


def unseen_files() -> list[Path]:
    """The held-out modules that this Python has."""
    return [file for name in UNSEEN if (file := library() / name).is_file()]


def seen_files() -> list[Path]:
    """All other modules, in the order of their names."""
    unseen = set(unseen_files())
    return sorted(
        file
        for file in library().rglob("*.py")
        if file not in unseen and not LEFT_OUT & set(file.relative_to(library()).parts)
    )


def sources(files: Iterable[Path]) -> list[str]:
    """The text of each file that has any."""
    texts = (file.read_text("utf-8", errors="replace") for file in files)
    return [text for text in texts if text.strip()]


def seen_text() -> str:
    """All that may be trained and calibrated on."""
    return "\n".join(sources(seen_files()))


def unseen_text() -> str:
    """All that is judged on."""
    return "\n".join(sources(unseen_files()))


def docstrings(files: Iterable[Path]) -> list[Documented]:
    """The documented functions and classes of these files, those of two words or more; none twice."""
    found: dict[tuple[str, str], Documented] = {}
    for text in sources(files):
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):  # templates of code
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                one = _documented(text, node)
                if one and len(one.summary.split()) > 1:
                    found.setdefault((one.summary, one.source), one)
    return list(found.values())


def summaries(files: Iterable[Path]) -> list[str]:
    """The first sentences of the docstrings, one line each, each once."""
    return list(dict.fromkeys(one.summary for one in docstrings(files)))


def _documented(text: str, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Documented | None:
    docstring = ast.get_docstring(node)
    if not docstring:
        return None
    lines = text.splitlines()
    head = lines[node.lineno - 1 : node.body[0].lineno - 1]
    rest = lines[node.body[0].end_lineno : node.end_lineno]
    first = docstring.split("\n\n")[0].split(". ")[0]
    return Documented(_one_line(first), docstring, "\n".join(head + rest))


def _one_line(text: str) -> str:
    return " ".join(text.split())
