"""The page of a search: what it says of the pick, and what it holds of every point."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from refusals import Zerolm
from small_searches import free_search, small_search

from zerolm.show.sheet import TERMINAL
from zerolm.show.strip import quoted
from zerolm.show.terminal import result_lines
from zerolm.solvers.result import Reference
from zerolm.verbs.report import Run
from zerolm.verbs.search_charts import FRONT_POINTS, candidacies, choices_text, rebuilding
from zerolm.verbs.search_report import SearchReport

EVIL = '</script><script>alert("1 & 2")</script>\'\u2028'


@pytest.fixture(scope="module")
def result() -> SearchReport:
    return replace(small_search(), run=Run({"max_params": "900k"}))


def records(page: str) -> Any:
    return json.loads(re.search(r'<script type="application/json" class="records">(.*?)</script>', page)[1])  # type: ignore[index]


def test_every_part_of_the_result_is_on_the_page(result: SearchReport) -> None:
    page = result.page()
    told = ("Proven: of the", "How flat the optimum is", "Bounds that cost score", "has seen no training")
    assert all(words in page for words in told)
    assert page.count("<html") == page.count("</html>") == 1
    assert page.count('class="plot"') == 2
    assert "src=" not in page
    held = records(page)["records"]
    assert "pick" in held[0]["roles"]
    assert "best 1" in " ".join(record["roles"] for record in held)
    assert len({record["choices"] for record in held}) == len(held)
    for choice in (result.pick, *result.best, *(b.choice for b in result.baselines)):
        assert choices_text(choice) in {record["choices"] for record in held}
    assert "zerolm search --config run.yaml" in page
    assert "max_params: 900k" in page


@pytest.mark.parametrize("make", [small_search, free_search])
def test_the_command_of_a_record_scores_that_architecture(
    make: Callable[[], SearchReport], zerolm: Zerolm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = make()
    before, after = rebuilding(result)
    for entry in candidacies(result)[:4]:
        write, _, rest = (before + quoted(choices_text(entry.choice)) + after).partition(" && ")
        subprocess.run(["bash", "-c", write], check=True, cwd=tmp_path)
        program, *arguments = shlex.split(rest)
        assert program == "zerolm"
        scored = json.loads(zerolm(*arguments, "--json").out)
        assert scored["costs"] == entry.choice.costs
        assert scored["scores"][0]["value"] == pytest.approx(entry.choice.score, rel=1e-9)


def test_the_page_is_small_however_many_points_the_front_has(result: SearchReport) -> None:
    points = [
        replace(result.pick, score=float(i), costs={**result.pick.costs, "params": i}) for i in range(1, 9001)
    ]
    choice = result.pick.architecture
    for i, point in enumerate(points):
        points[i] = replace(point, architecture=replace(choice, choices={**choice.choices, "note": i}))
    page = replace(result, front=replace(result.front, points=points)).page()
    assert len(page) < 250_000
    assert len(records(page)["records"]) <= FRONT_POINTS + len(result.best) + len(result.baselines) + 1


def test_hostile_choices_are_text(result: SearchReport) -> None:
    architecture = result.pick.architecture
    evil = replace(architecture, space=EVIL, choices={**architecture.choices, EVIL: EVIL, "depth": 2})
    pick = replace(result.pick, architecture=evil)
    question = replace(result.question, score=EVIL)
    evil_run = Run({"command": EVIL}, machine=EVIL)
    page = replace(result, pick=pick, best=[pick], question=question, run=evil_run).page()
    assert page.count("<script") == page.count("</script") == result.page().count("<script")
    assert "\u2028" not in page.split("</style>")[1].split('class="records"')[1].split("</script>")[0]
    assert json.loads(records(page)["records"][0]["choices"])[EVIL] == EVIL
    assert "<script" not in replace(result, pick=pick, question=question)._repr_html_()


def test_differences_are_against_the_pick(result: SearchReport) -> None:
    """Also where the pick is not the best."""
    other = next(c for c in result.best if c.architecture.choices != result.pick.architecture.choices)
    params = next(b for b in result.baselines if b.name == "params")
    choice = next(c for c in result.front.points if c not in (result.pick, *result.best))
    changed = replace(result, pick=other, baselines=[replace(params, choice=choice)])
    change = f"{100 * (choice.score - other.score) / other.score:+.2f}"
    lines = list(result_lines(changed.lines(), changed.sheets(), None))
    assert [line.split()[1] for line in lines if line.startswith("params ")] == [change]
    assert changed.page().count(f"{change} %") == 1


def test_page_and_terminal_show_the_same_tables(result: SearchReport) -> None:
    page = result.page()
    for sheet in result.sheets():
        if TERMINAL in sheet.on and sheet.rows:
            assert f"<h2>{sheet.title}</h2>" in page
            assert f'<table class="{sheet.kind}">' in page
        assert not (TERMINAL in sheet.on and sheet.charts)


def test_no_table_is_laid_out_as_something_else(result: SearchReport) -> None:
    """The kind of a table is a class of the page, which may have the style of another part."""
    style = (files("zerolm.show") / "assets" / "page.css").read_text("utf-8")
    laid_out = set(re.findall(r"^\.([\w-]+) \{[^}]*display: (?:grid|flex|contents)", style, re.MULTILINE))
    baseline = Reference("another", result.best[-1], [])
    beside = replace(result, question=replace(result.question, baseline=baseline))
    kinds = {sheet.kind for sheet in beside.sheets() if sheet.rows and sheet.kind != "pairs"}
    assert "beside" in laid_out
    assert not kinds & laid_out
