"""Pages, help, errors and docstrings keep the house style; the check itself is tested on bad text."""

import json
from functools import cache
from pathlib import Path

import prose
import pytest

from zerolm.scores import SCORES
from zerolm.spaces import SPACES
from zerolm.verbs import commands

ROOT = Path(__file__).parents[1]
PAGES = (
    *(
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "tests/README.md")
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
)


@cache
def findings(scope: str) -> tuple[str, ...]:
    """Return the broken rules of a scope, exceptions included."""
    return tuple(prose.findings(passages(scope)))


def passages(scope: str) -> list[prose.Passage]:
    if scope == prose.DOCS:
        pages = {name_of(page): page.read_text("utf-8") for page in PAGES} | notebooks()
        return [row for name, text in pages.items() for row in prose.from_markdown(name, text)]
    if scope == prose.HELP:
        return [*prose.from_verbs(commands()), *prose.from_registry(SPACES), *prose.from_registry(SCORES)]
    extractors = {prose.ERROR: prose.messages, prose.SHOWN: prose.shown, prose.DOCSTRING: prose.docstrings}
    files = sorted((ROOT / "zerolm").rglob("*.py"))
    rows = [row for file in files for row in extractors[scope](name_of(file), file.read_text("utf-8"))]
    if scope == prose.ERROR:
        for file in sorted((ROOT / "zerolm" / "families").glob("*.json")):
            rows += prose.notes(name_of(file), file.read_text("utf-8"))
    return rows


def notebooks() -> dict[str, str]:
    """Return the text of each notebook, its cells of Markdown in order."""
    texts = {}
    for file in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        cells = json.loads(file.read_text("utf-8"))["cells"]
        cells = [cell for cell in cells if cell["cell_type"] == "markdown"]
        texts[name_of(file)] = "\n\n".join("".join(cell["source"]) for cell in cells)
    return texts


def name_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


@pytest.mark.built
@pytest.mark.parametrize("scope", prose.EVERYWHERE)
def test_sentences_are_short_and_words_are_those_of_the_glossary(scope: str) -> None:
    wrong = [line for line in findings(scope) if not any(text in line for text in prose.EXCEPTIONS)]
    if wrong:
        pytest.fail("\n".join([f"{len(wrong)} passages break the style:", *wrong]), pytrace=False)


@pytest.mark.built
def test_every_exception_is_needed() -> None:
    lines = [line for scope in prose.EVERYWHERE for line in findings(scope)]
    unused = [text for text in prose.EXCEPTIONS if not any(text in line for line in lines)]
    assert not unused, "remove them from EXCEPTIONS"
    assert all(len(reason.split()) > 2 for reason in prose.EXCEPTIONS.values())


@pytest.mark.built
def test_every_scope_has_passages() -> None:
    counts = {scope: len(passages(scope)) for scope in prose.EVERYWHERE}
    assert counts[prose.DOCS] > 2000
    assert counts[prose.HELP] > 300
    assert counts[prose.ERROR] > 500
    assert counts[prose.SHOWN] > 1500
    assert counts[prose.DOCSTRING] > 2500


LONG = " ".join(["word"] * 25)
PAGE = f"""# What the loss feels

A good sentence [with a link](https://example.org/so-many). {LONG} more
of them.

<!-- {LONG} {LONG} is foretold -->

- Types are `told` by the text:
  1. {LONG}
  2. beside its parent

| a cell, {LONG}, is long | so many |
|---|---|

```python
"{LONG} {LONG}"  # beside
```

    zerolm carve so many {LONG}
"""


def test_a_bad_page_is_found_and_its_code_is_not() -> None:
    lines = [line.partition(" (write")[0] for line in prose.findings(prose.from_markdown("page.md", PAGE))]
    assert lines == [
        "docs page.md:1: 'feels'",
        f"docs page.md:3: 28 words: {LONG} more of them.",
        "docs page.md:10: 'beside'",
        "docs page.md:12: 'so many'",
    ]


SOURCE = f'''
"""A module."""


def units(count):
    """Return what a unit sends beside others.

    So many ``told`` units. {LONG} {LONG}
    """
    if not count:
        raise ValueError(f"{{count}} units cannot be: {LONG}")
    raise KeyError("the loss " + "feels them" if count > 1 else "nothing is wrong")
    print(f"{{count}} tokens beside {{units}}", "beside")
'''


def test_bad_docstrings_and_messages_are_found() -> None:
    lines = [line.partition(" (write")[0] for line in prose.findings(prose.docstrings("a.py", SOURCE))]
    assert lines == [
        "docstring a.py:6: 'beside'",
        "docstring a.py:6: 'sends'",
        "docstring a.py:6: 'Return what'",
        "docstring a.py:6: 'So many'",
    ]
    lines = [line.partition(" (write")[0] for line in prose.findings(prose.messages("a.py", SOURCE))]
    assert lines == [f"error a.py:11: 29 words: X units cannot be: {LONG}", "error a.py:12: 'feels'"]
    lines = [line.partition(" (write")[0] for line in prose.findings(prose.shown("a.py", SOURCE))]
    assert lines == ["shown a.py:13: 'beside'"]


@pytest.mark.parametrize("banned", prose.BANNED, ids=[banned.pattern[:30] for banned in prose.BANNED])
def test_every_pattern_finds_a_sentence_that_it_is_for(banned: prose.Banned) -> None:
    passage = prose.Passage(banned.scopes[-1], "here", banned.example)
    assert any(f"(write: {banned.instead})" in line for line in prose.findings([passage]))
