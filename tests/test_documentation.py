"""README and documentation: every command and snippet runs, numbers are those of the measurements."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from snippets import Missing, agrees, blocks, run, run_command, steps

from zerolm.lab.zero_cost import find_proxy
from zerolm.lab.zero_cost.registry import PROXIES
from zerolm.scores import SCORES
from zerolm.spaces import SPACES, space_names
from zerolm.units.importance.criteria import CRITERIA
from zerolm.verbs import commands

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
sys.path.insert(0, str(ROOT / "docs"))


@pytest.fixture
def registered() -> Iterator[None]:
    """Forget what snippets register; what is built in is there first."""
    pytest.importorskip("torch")
    find_proxy("snip")
    before = {registry: dict(registry._entries) for registry in (SCORES, SPACES, PROXIES, CRITERIA)}
    yield
    for registry, entries in before.items():
        registry._entries = entries  # type: ignore[assignment]


@pytest.mark.built
@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_snippets_print_what_is_shown(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = os.environ.get("ZEROLM_DATA")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("ZEROLM_FAMILIES", "")  # a snippet sets it
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    names: dict[str, Any] = {}
    for step in steps(page.read_text("utf-8")):
        if "data" in step.block.marks and not data:
            continue
        try:
            printed = run(step, names)
        except Missing as reason:
            pytest.skip(str(reason))
        shown = step.shown
        if shown is not None and not agrees(shown, printed, "varies" in step.block.marks):
            pytest.fail(f"{step.source}\nthe page shows\n{shown}\nbut it prints\n{printed}", pytrace=False)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_what_does_not_run_only_installs(page: Path) -> None:
    known = {"console", "csv", "json", "python", "sh", "text", "toml", "yaml"}
    for block in blocks(page.read_text("utf-8")):
        assert block.language in known, f"{block.language} blocks are not run"
        if block.language == "sh":
            for line in block.text.splitlines():
                assert re.match(r"(cd|git|make|pip|python) ", line), line
    assert page.read_text("utf-8").count("```") % 2 == 0


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_numbers_are_those_of_the_measurements(page: Path) -> None:
    import measured

    text = page.read_text("utf-8")
    assert "{{" not in text, "a value is not written in"
    assert measured.renewed(text, measured.values()) == text, "run `python docs/measured.py`"
    assert len(measured.COMMENT.findall(text)) == text.count("<!-- measured"), "a comment is not one"


MEASURED = """Of 12, 2
are .5 to
.7 wide.
<!-- measured: all=12; few=2;
width=.5 to .7 -->

| a |
|---|
| 1 |
<!-- measured: rows -->
"""


def test_numbers_are_written_where_they_stand() -> None:
    import measured

    rows = "| a |\n|---|\n| 2 |"
    facts = {"all": "2", "few": "12", "width": ".6 to .8", "rows": rows}
    page = measured.renewed(MEASURED, facts)
    assert page == (
        "Of 2, 12\nare .6 to .8 wide.\n<!-- measured: all=2; few=12;\nwidth=.6 to .8 -->\n\n"
        f"{rows}\n<!-- measured: rows -->\n"
    )
    assert measured.renewed(page, facts) == page
    for wrong in ("Of 2, 12", "Of 12.5, 2", "Of 12, 3"):
        with pytest.raises(LookupError, match="is not in its place"):
            measured.renewed(MEASURED.replace("Of 12, 2", wrong), facts)


LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere_on_a_code_host_too(page: Path) -> None:
    for place in LINK.findall(re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)):
        made = page.is_relative_to(ROOT / "docs") and place.startswith("commands/")
        assert made or (page.parent / place).exists(), place


def test_the_figures_are_those_of_the_measurements() -> None:
    import figures

    for name, draw in figures.FIGURES.items():
        assert (figures.ASSETS / f"{name}.svg").read_text("utf-8") == draw(), "run `python docs/figures.py`"


class Page(HTMLParser):
    """The links of a page, and the names of its places."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src"):
                self.links.append(value or "")
            elif name == "id":
                self.places.add(value or "")


@pytest.mark.built
def test_the_site_asks_nobody_and_lacks_nothing() -> None:
    """``make docs`` has built it, without a warning; its notebooks ran."""
    pages = list((ROOT / "site").rglob("*.html"))
    assert len(pages) > len(commands()) + len(PAGES)
    loaded = re.compile(r"<(?:script|img|iframe|link rel=\"?stylesheet)[^>]*(?:src|href)=\"?https?:")
    for page in pages:
        text = page.read_text("utf-8")
        assert not loaded.search(text), page
        assert "<!-- measured" not in text, page


@pytest.mark.built
def test_every_link_of_the_site_leads_to_a_place() -> None:
    files = {file.resolve() for file in (ROOT / "site").rglob("*") if file.name != "404.html"}
    pages = {file: Page(file) for file in files if file.suffix == ".html"}
    for file, page in pages.items():
        for link in map(urlsplit, page.links):
            if not (link.scheme or link.netloc):
                target = (file.parent / unquote(link.path)).resolve() if link.path else file
                assert target in files, f"{file}: {link.path}"
                places = pages[target].places if target in pages else set()
                assert not link.fragment or unquote(link.fragment) in places, f"{file}: {link.geturl()}"


PAGE_OF_EACH_KIND = (
    "index.html", "tutorials/ship.html", "notebooks/search.html", "evidence.html", "commands/index.html",
    "commands/search.html", "api.html",
)  # fmt: skip


@pytest.mark.built
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_site_is_for_everybody(scheme: Any) -> None:
    """axe-core finds nothing wrong, on a wide screen and a narrow one."""
    api = pytest.importorskip("playwright.sync_api")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    path = os.environ.get("ZEROLM_CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip("there is no Chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        for width in (1300, 390):
            context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
            for name in PAGE_OF_EACH_KIND:
                page = context.new_page()
                page.goto((ROOT / "site" / name).as_uri())
                page.wait_for_selector(".md-typeset h1")
                page.wait_for_timeout(300)  # colours fade in
                assert not axe.run(page).response["violations"], f"{name}, {width} wide"
        browser.close()


HEAVY = {"--all", "--limit", "--proxies", "--tasks", "heal", "--heal", "--beside", "elastic"}
"""What an example has that takes minutes, a network connection, another package or another child."""

TINY = shlex.split(
    "--count 5 --tokens 64 --batch 2 --length 8 --hidden 16 --depth 1,2 --head-size 8 --ffn 16,24,32,48 "
    "--heads-per-kv 1 --hidden-per-depth 1:99 --ffn-per-hidden 1:9 --vocab 300"
)
"""Of an example that trains."""


def make_folder(folder: Path) -> None:
    """Write what the examples name: labels, a tiny model and its child to be, a text, a configuration."""
    from tiny import saved, word_tokenizer

    page = (ROOT / "docs" / "tutorials" / "pretrain.md").read_text("utf-8")
    (folder / "labels.csv").write_text(next(b.text for b in blocks(page) if b.title == "labels.csv"))
    for name in ("PARENT", "MODEL"):
        word_tokenizer(saved(folder / name, "llama"))
    for name in ("ENCODER", "ENCODED"):
        word_tokenizer(saved(folder / name, "bert"))
    word_tokenizer(saved(folder / "CLASSIFIER", "bert_classes"), "w0")
    rows = [f"w{i} w{i + 1},{i % 2}" for i in range(9)]
    (folder / "ROWS.csv").write_text("\n".join(["text,label", *rows]))
    rows = [f"w{i} w{i + 1},w{i} w{i + 2},{i % 2},Failed" for i in range(9)]
    head = "original_text,perturbed_text,ground_truth_output,result_type"
    (folder / "ATTACKED.csv").write_text("\n".join([head, *rows]))
    rows = [f"w{i},w{i * i % 64},{i % 5}" for i in range(9)]
    (folder / "PAIRS.csv").write_text("\n".join(["sentence1,sentence2,score", *rows]))
    for name in ("TEXT", "CODE", "CHAT"):
        (folder / name).write_text(" ".join(f"w{i * 7 % 64}" for i in range(8000)))
    (folder / "config.json").write_bytes((folder / "PARENT" / "config.json").read_bytes())
    (folder / "mine").mkdir()


@pytest.mark.built
def test_the_examples_of_the_commands_run(here: Path) -> None:
    pytest.importorskip("transformers")
    make_folder(here)
    ran = 0
    for verb in commands().values():
        for example, _ in verb.request.examples:
            words = shlex.split(example)
            if HEAVY & set(words):
                continue
            if words[1:3] == ["lab", "proxies"] and words[3] != "ls":
                words += ["--batch", "4", "--length", "16", "--micro-batches", "2"]
            elif words[1:3] == ["bench", "train"]:
                words += TINY
            elif words[1:3] == ["lab", "slice"]:
                words += ["--count", "12", "--sequences", "8", "--length", "16"]
            elif words[1:3] == ["lab", "ablate"]:
                words = [*words[:3], "labels.csv"]
            elif "--vocabularies" in words:
                words += ["--vocabularies", "260,280,300"]
            elif "--text" in words and "--recipe" not in words:
                words += ["--sequences", "8", "--length", "16"]
            run_command(words)
            ran += 1
    assert ran > len(commands())


@pytest.mark.built
def test_the_worked_commands_run_on_a_tiny_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accelerate")
    from tiny import byte_tokenizer, saved

    byte_tokenizer(saved(tmp_path / "qwen", "qwen2_tied"))
    for name in ("text.txt", "unseen.txt"):
        (tmp_path / name).write_text(" ".join(f"w{i * 7 % 64}" for i in range(8000)))
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "worked.md").read_text("utf-8")
    commands = re.findall(r"^    (zerolm .*)$", page, flags=re.MULTILINE)
    assert len(commands) > 5
    for words in map(shlex.split, commands):
        few = {"heal": "--tokens 256 --batch 2 --length 16", "doctor": ""}
        more = "" if "--recipe" in words else few.get(words[1], "--sequences 8 --length 16")
        run_command(words + more.split())
    assert Path("healed").is_dir()


def test_every_public_function_is_documented() -> None:
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    verbs = {verb.function or name.replace(" ", ".") for name, verb in commands().items()}
    helpers = {"load", "make_score", "make_space", "read_labels"}
    assert set(re.findall(r"^::: zerolm\.([\w.]+)$", text, flags=re.MULTILINE)) == verbs | helpers


def test_every_space_is_explained() -> None:
    text = (ROOT / "docs" / "how-it-works.md").read_text("utf-8")
    for name in space_names():
        assert f"`{name}`" in text
