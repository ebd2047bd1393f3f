"""Snippets of Markdown pages: they run in order, in one folder, and print what the page shows.

``console`` blocks hold commands after ``$`` and their output. ``python`` blocks share their names; a
``text`` block right after one is what it prints. A block with ``title="FILE"`` is written to that file.
``...`` alone in a line stands for any lines, seconds are not compared, and in blocks marked ``varies`` no
number is. Blocks marked ``data`` need published benchmarks, ``torch`` needs torch, ``sentences`` needs
sentence-transformers. ``sh`` blocks do not run.

``python tests/snippets.py PAGE ...`` writes the output that the commands have now into pages.
"""

import atexit
import contextlib
import importlib.util
import io
import os
import re
import runpy
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(?P<info>[^\n`]+)\n(?P<text>.*?)^```$", flags=re.DOTALL | re.MULTILINE)
SECONDS = re.compile(r"\b[0-9.]+ (?:ms|s|seconds?|minutes?)\b")
SCRIPTS = ("docs/make_parent.py", "docs/make_encoder.py")
NUMBER = re.compile(r"[-+]?[0-9][0-9.,]*%?")


class Missing(Exception):
    """A page needs what this machine lacks."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its marks, its text, and where the text lies in the page."""

    language: str
    marks: frozenset[str]
    title: str
    text: str
    span: tuple[int, int]


def blocks(page: str) -> list[Block]:
    made = []
    for match in BLOCK.finditer(page):
        title = re.search(r'title="([^"]+)"', match["info"])
        language, *marks = re.sub(r'title="[^"]+"', "", match["info"]).split()
        made.append(
            Block(language, frozenset(marks), title[1] if title else "", match["text"], match.span("text"))
        )
    return made


@dataclass(frozen=True)
class Step:
    """Something that runs, and the output that the page shows of it, or None."""

    block: Block
    source: str
    shown: str | None
    span: tuple[int, int]


def steps(page: str) -> Iterator[Step]:
    """Return what runs, in order."""
    previous: Block | None = None
    for block in blocks(page):
        if block.language == "console":
            yield from commands(block)
        elif block.language == "text" and previous and previous.language == "python":
            yield Step(previous, previous.text, block.text, block.span)
        if (previous and previous.language == "python" and block.language != "text") and previous:
            yield Step(previous, previous.text, None, previous.span)
        if block.title:
            yield Step(block, "", None, block.span)
        previous = block
    if previous and previous.language == "python":
        yield Step(previous, previous.text, None, previous.span)


def commands(block: Block) -> Iterator[Step]:
    """Return each command of a console block with what follows it."""
    place = block.span[0]
    for part in re.split(r"^(?=\$ )", block.text, flags=re.MULTILINE):
        if part.startswith("$ "):
            command = re.match(r"\$ (?:[^\n]*\\\n)*[^\n]*\n", part)
            assert command, part
            shown = part[command.end() :]
            start = place + command.end()
            source = command[0][2:].replace("\\\n", " ")
            yield Step(block, source, shown if shown.strip() else None, (start, place + len(part)))
        place += len(part)


def run(step: Step, names: dict[str, Any]) -> str:
    if "torch" in step.block.marks and not importlib.util.find_spec("transformers"):
        raise Missing("torch and transformers are not installed")
    if "sentences" in step.block.marks and not importlib.util.find_spec("sentence_transformers"):
        raise Missing("sentence-transformers is not installed")
    if step.block.language == "python":
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(step.source, "snippet", "exec"), names)
        return out.getvalue()
    if step.block.title:
        Path(step.block.title).write_text(step.block.text, encoding="utf-8")
        return ""
    words = shlex.split(step.source)
    is_script = words[0] == "python" and words[1] in SCRIPTS
    return make_parent(words[1]) if is_script else run_command(words)


@cache
def scripted(script: str) -> tuple[Path, str]:
    """Return a folder in which a script of the documentation ran, and what it printed; once for all pages."""
    folder = Path(tempfile.mkdtemp(prefix="parent-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(str(ROOT / script))
    return folder, out.getvalue()


def make_parent(script: str) -> str:
    """Do what a script of the documentation does in the present folder, and return what it prints."""
    folder, printed = scripted(script)
    shutil.copytree(folder, Path.cwd(), dirs_exist_ok=True)
    return printed


def run_command(words: list[str]) -> str:
    """Run ``zerolm ...`` in this process, and return what it prints; it must succeed."""
    from zerolm.cli import main

    assert words[0] == "zerolm", words
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = main(words[1:])
    assert (status, "Traceback" in err.getvalue()) == (0, False), f"{' '.join(words)}: {err.getvalue()}"
    return out.getvalue()


def agrees(shown: str, printed: str, varies: bool) -> bool:
    """Whether a page shows what was printed."""

    def plain(text: str) -> list[str]:
        text = SECONDS.sub("# s", text)
        text = re.sub(r"[#,.\s]*#", "#", NUMBER.sub("#", text)) if varies else text
        lines = (" ".join(line.split()) if varies else line.rstrip() for line in text.strip().splitlines())
        return [line for line in lines if line]

    pattern = "\n".join(
        "*" if line == "..." else re.sub(r"[][*?]", "[\\g<0>]", line) for line in plain(shown)
    )
    return fnmatchcase("\n".join(plain(printed)), pattern)


def write(page: Path) -> None:
    text = page.read_text("utf-8")
    changes, names = [], dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("work").mkdir()  # as in the tests: some output names the folder
        os.chdir("work")
        for step in steps(text):
            printed = run(step, names)
            if step.shown is not None and not agrees(step.shown, printed, "varies" in step.block.marks):
                lines = re.sub(r"[ \t]+$", "", printed.strip("\n"), flags=re.MULTILINE)
                changes.append((step.span, lines + "\n"))
    for (start, end), printed in reversed(changes):
        text = text[:start] + printed + text[end:]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write(Path(name))
