"""The page of a search, and what a search says of training, and of depth against width."""

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
from small_searches import FEW, free_search, small_search

import zerolm
from zerolm.cost_columns import TRAINING
from zerolm.pretraining import OPERATIONS, chinchilla
from zerolm.scores.shape import RATIOS, TOKENS_A_PARAMETER, worth
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


def test_one_depth_and_width_are_no_landscape(result: SearchReport) -> None:
    alone = replace(result, plateau=replace(result.plateau, landscape=result.plateau.landscape[:1]))
    assert "How flat the optimum is" not in alone.page()


def test_without_baselines_no_mark_is_explained(result: SearchReport) -> None:
    assert "chosen by baselines" in result.page()
    assert "chosen by baselines" not in replace(result, baselines=[]).page()


@pytest.mark.parametrize("make", [small_search, free_search])
def test_the_command_of_a_record_scores_that_architecture(
    make: Callable[[], SearchReport], zerolm: Zerolm, here: Path
) -> None:
    result = make()
    before, after = rebuilding(result)
    for entry in candidacies(result)[:4]:
        write, _, rest = (before + quoted(choices_text(entry.choice)) + after).partition(" && ")
        subprocess.run(["bash", "-c", write], check=True, cwd=here)
        program, *arguments = shlex.split(rest)
        assert program == "zerolm"
        scored = zerolm(*arguments, "--json").document
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


def searched(**more: Any) -> SearchReport:
    report: SearchReport = zerolm.search("llama", **{**FEW, **more})
    return report


def test_operations_and_tokens_are_a_budget_of_macs() -> None:
    report = searched(max_train_flops=1e18, train_tokens="10B")
    limit = int(1e18) // (OPERATIONS * 10**10)
    assert report.question.budgets == {"max_macs": limit}
    assert report.pick.costs["macs"] <= limit
    assert report.to_json()["question"]["training"] == {"tokens": 10**10, "max_flops": 1e18, "law": ""}
    assert SearchReport.from_json(report.to_json()).question.training == report.question.training
    smaller = searched(max_train_flops=1e18, train_tokens="10B", max_macs="10M")
    assert smaller.question.budgets == {"max_macs": 10_000_000}


def test_without_tokens_they_are_as_many_as_are_best() -> None:
    report = searched(max_train_flops=5e16)
    plan = report.question.training
    assert plan.tokens == round(chinchilla(5e16).tokens)
    assert any("by the law of Chinchilla" in line for line in report.lines())


def test_tokens_alone_bind_nothing_and_are_told() -> None:
    report = searched(max_params="16M", train_tokens="3B")
    assert report.question.budgets == {"max_params": 16_000_000}
    flops = OPERATIONS * report.pick.costs["macs"] * 3 * 10**9
    assert any(f"{flops:.3g} operations" in line for line in report.lines())
    (sheet,) = (sheet for sheet in report.sheets() if sheet.title == "How long to train")
    assert [row[0] for row in sheet.rows] == ["the pick", "Chinchilla", "DeepSeek LLM"]


def test_memory_is_a_budget_with_a_column() -> None:
    report = searched(max_train_bytes="900MB", train_batch=2, context=512)
    assert report.pick.costs[TRAINING] <= 900_000_000
    assert "training memory" in "\n".join(report.lines())
    more = searched(max_train_bytes="900MB", train_batch=8, context=512)
    assert more.pick.costs["params"] < report.pick.costs["params"]


def test_other_scores_say_nothing_of_it() -> None:
    report = searched(max_params="16M")
    assert not any("hidden / depth" in line or "as good as" in line for line in report.lines())


def by_shape(**more: Any) -> SearchReport:
    return searched(max_params="16M", score="shape_law", **more)


@pytest.mark.parametrize("tokens", [None, "1B"])
def test_a_pick_tells_its_ratio_and_its_worth(tokens: str | None) -> None:
    report = by_shape(train_tokens=tokens)
    pick = report.pick.architecture
    (line,) = (line for line in report.lines() if "hidden / depth" in line)
    assert f"hidden / depth: {pick.mean_width / pick.depth:.3g}, best about" in line
    others = {one.name: one.choice.architecture for one in report.baselines}
    for name in ("params", "body_params"):
        lines = [line for line in report.lines() if f"as good as the choice of {name}:" in line]
        if others[name].choices == pick.choices:
            assert not lines
            continue
        more = worth(pick, others[name], None if tokens is None else 10**9)
        assert f"with {100 * (more.value - 1):.1f} % (95 %: {100 * (more.low - 1):.1f} to" in lines[0]


def test_the_page_has_the_ridge() -> None:
    (sheet,) = (sheet for sheet in by_shape().sheets() if sheet.title == "Depth against width")
    assert sheet.rows[[row[0] for row in sheet.rows].index("1 x")][2] == "0.0 % (95 %: 0.0 to 0.0)"
    costs = [float(str(row[2]).split()[0]) for row in sheet.rows]
    middle = costs.index(0.0)
    assert costs[: middle + 1] == sorted(costs[: middle + 1], reverse=True)
    assert costs[middle:] == sorted(costs[middle:])
    assert "Depth against width" not in [sheet.title for sheet in searched(max_params="16M").sheets()]


def test_a_training_beyond_the_data_is_told() -> None:
    few, most = TOKENS_A_PARAMETER
    assert not by_shape(train_tokens="1B").remarks
    (told,) = by_shape(train_tokens=1000).remarks
    assert f"is beyond {few:g} to" in told
    (told,) = by_shape(train_tokens="1000T").remarks
    assert f"to {most:,g}, which" in told
    (told,) = by_shape(depth=1, hidden=512, head_size=64).remarks
    assert told.startswith(f"warning: hidden / depth 512 is beyond {RATIOS[0]:g} to {RATIOS[1]:g}")
