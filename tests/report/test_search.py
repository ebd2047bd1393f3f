"""The page of a search: what it says of the pick, and what it holds of every point."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_pages import KINDS, Made

from zerolm.report.phrases import against_counting
from zerolm.report.search import search_fragment, search_page
from zerolm.report.search_records import MOST, candidacies, choices, quoted, rebuilding
from zerolm.solvers import SearchResult, search
from zerolm.spaces import make_space

EVIL = '</script><script>alert("1 & 2")</script>\'\u2028'


def records(page: str) -> Any:
    return json.loads(re.search(r'<script type="application/json" class="records">(.*?)</script>', page)[1])  # type: ignore[index]


def test_the_first_lines_say_where_counting_picks_the_same(made: Made) -> None:
    result: SearchResult = made.inputs["search"]
    params = next(b for b in result.baselines if b.name == "params")
    others = [b for b in result.baselines if b.name not in ("params", "body_params")]
    same = replace(result, baselines=[replace(params, choice=result.pick), *others])
    assert against_counting(same).startswith("Counting parameters picks the very same network")
    other = next(c for c in result.front.points if c.architecture != result.pick.architecture)
    assert other.score < result.pick.score
    less = 100 * (1 - other.score / result.pick.score)
    said = against_counting(replace(result, baselines=[replace(params, choice=other)]))
    assert "picks another network" in said
    assert f"It has {less:.1f} % less geo" in said
    assert "No baseline" in against_counting(replace(result, baselines=[]))
    pick = replace(result, pick=other, baselines=[replace(params, choice=result.best[0])])
    assert "the network with the highest score, too" in against_counting(pick)


def test_every_part_of_the_result_is_on_the_page(made: Made) -> None:
    page, result = made.pages["search"], made.inputs["search"]
    for words in (
        "Proven: none of the",
        "How flat the optimum is",
        "Bounds that cost score",
        "ranks better than",
    ):
        assert words in page
    held = records(page)["records"]
    assert "pick" in held[0]["roles"]
    assert "best 1" in " ".join(record["roles"] for record in held)
    assert len({record["choices"] for record in held}) == len(held)
    for choice in (result.pick, *result.best, *(b.choice for b in result.baselines)):
        assert choices(choice) in {record["choices"] for record in held}
    assert "zerolm any --config run.yaml" in page
    assert "max_params: 900k" in page


@pytest.mark.parametrize("kind", ["search", "search-free"])
def test_the_command_of_a_record_scores_that_architecture(
    made: Made, kind: str, zerolm: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = made.inputs[kind]
    before, after = rebuilding(result)
    for entry in candidacies(result)[:4]:
        write, _, rest = (before + quoted(choices(entry.choice)) + after).partition(" && ")
        subprocess.run(["bash", "-c", write], check=True, cwd=tmp_path)
        program, *arguments = shlex.split(rest)
        assert program == "zerolm"
        scored = json.loads(zerolm(*arguments, "--json").out)
        assert scored["costs"] == entry.choice.costs
        assert scored["scores"][0]["value"] == pytest.approx(entry.choice.score, rel=1e-9)


def test_the_page_is_small_however_many_points_the_front_has(made: Made) -> None:
    result: SearchResult = made.inputs["search"]
    points = [
        replace(result.pick, score=float(i), costs={**result.pick.costs, "params": i}) for i in range(1, 9001)
    ]
    choice = result.pick.architecture
    for i, point in enumerate(points):
        choices_of = {**choice.choices, "note": i}
        points[i] = replace(point, architecture=replace(choice, choices=choices_of))
    page = search_page(replace(result, front=replace(result.front, points=points)))
    assert len(page) < 250_000
    assert len(records(page)["records"]) <= MOST + len(result.best) + len(result.baselines) + 1


def test_the_demo_is_below_its_limit() -> None:
    budgets = {"max_params": 125_000_000, "max_kv_bytes": 32_000_000}
    page = search_page(search(make_space("llama"), "geo", budgets=budgets))
    assert len(page.encode()) < 300_000


def test_hostile_choices_are_text(made: Made) -> None:
    result: SearchResult = made.inputs["search"]
    architecture = result.pick.architecture
    evil = replace(architecture, space=EVIL, choices={**architecture.choices, EVIL: EVIL, "depth": 2})
    pick = replace(result.pick, architecture=evil)
    question = replace(result.question, score=EVIL)
    page = search_page(replace(result, pick=pick, best=[pick], question=question), {"command": EVIL})
    assert page.count("<script") == page.count("</script") == made.pages["search"].count("<script")
    assert "\u2028" not in page.split("</style>")[1].split('class="records"')[1].split("</script>")[0]
    assert json.loads(records(page)["records"][0]["choices"])[EVIL] == EVIL
    assert "<script" not in search_fragment(replace(result, pick=pick, question=question))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "score"])
def test_a_fragment_is_small_and_needs_no_script_or_style(made: Made, kind: str) -> None:
    fragment = made.fragments[kind]
    assert len(fragment) < 30_000
    assert not re.search(r"<(script|style|link|img)\b|var\(--", fragment)
    assert (fragment[:4], fragment[-6:]) == ("<div", "</div>")
    assert "<svg" in fragment or kind in (
        "doctor",
        "ledger",
        "comparison",
        "proxies-model",
        "path",
    )
    assert not re.search(r'(fill|stroke)="(black|white|#fff|#000)"', fragment)


@pytest.mark.parametrize("kind", ["search", "comparison", "carving", "doctor"])
def test_a_page_holds_no_undefined_number(made: Made, kind: str) -> None:
    text = re.sub(r"<(script|style)\b.*?</\1>", "", made.pages[kind], flags=re.DOTALL)
    assert not re.search(r">[^<]*\b(nan|inf)\b|\bNone<", text)
