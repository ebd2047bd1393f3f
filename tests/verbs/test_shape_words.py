"""What a search by shape_law says of depth against width: cost, worth, and where it goes beyond its data."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import Zerolm
from small_searches import FEW

import zerolm
from zerolm.scores.shape import RATIOS, TOKENS_A_PARAMETER, worth
from zerolm.verbs.search_report import SearchReport


def searched(**more: Any) -> SearchReport:
    report: SearchReport = zerolm.search("llama", max_params="16M", score="shape_law", **{**FEW, **more})
    return report


def test_other_scores_say_nothing_of_it() -> None:
    report: SearchReport = zerolm.search("llama", max_params="16M", **FEW)
    assert not any("hidden / depth" in line or "as good as" in line for line in report.lines())


@pytest.mark.parametrize("tokens", [None, "1B"])
def test_a_pick_tells_its_ratio_and_its_worth(tokens: str | None) -> None:
    report = searched(train_tokens=tokens)
    pick = report.pick.architecture
    (line,) = (line for line in report.lines() if "hidden / depth" in line)
    assert f"hidden / depth: {pick.mean_width / pick.depth:.3g}, best about" in line
    others = {one.name: one.choice.architecture for one in report.baselines}
    for name, words in (("params", "counting parameters"), ("body_params", "counting body parameters")):
        lines = [line for line in report.lines() if f"as good as what {words} picks" in line]
        if others[name].choices == pick.choices:
            assert not lines
            continue
        more = worth(pick, others[name], None if tokens is None else 10**9)
        assert f"with {100 * (more.value - 1):.1f} % (95 %: {100 * (more.low - 1):.1f} to" in lines[0]


def test_the_page_has_the_ridge() -> None:
    report = searched()
    (sheet,) = (sheet for sheet in report.sheets() if sheet.title == "Depth against width")
    on = sheet.rows[[row[0] for row in sheet.rows].index("1 x")]
    assert on[2] == "0.0 % (95 %: 0.0 to 0.0)"
    costs = [float(str(row[2]).split()[0]) for row in sheet.rows]
    middle = costs.index(0.0)
    assert costs[: middle + 1] == sorted(costs[: middle + 1], reverse=True)
    assert costs[middle:] == sorted(costs[middle:])
    others = zerolm.search("llama", max_params="16M", **FEW).sheets()
    assert "Depth against width" not in [sheet.title for sheet in others]


def test_a_training_beyond_the_data_is_told() -> None:
    few, most = TOKENS_A_PARAMETER
    assert not searched(train_tokens="1B").remarks
    (told,) = searched(train_tokens=1000).remarks
    assert f"is beyond {few:g} to" in told
    (told,) = searched(train_tokens="1000T").remarks
    assert f"to {most:,g}, which" in told


def test_a_ratio_beyond_the_data_is_told() -> None:
    report = searched(depth=1, hidden=512, head_size=64)
    (told,) = report.remarks
    assert told.startswith(f"warning: hidden / depth 512 is beyond {RATIOS[0]:g} to {RATIOS[1]:g}")


@pytest.mark.parametrize("tokens", ["0", "-3", "none"])
def test_tokens_that_make_no_sense_are_one_line(tokens: str, zerolm: Zerolm) -> None:
    zerolm(
        "search", "llama", "--max-params", "16M", "--score", "shape_law", f"--train-tokens={tokens}"
    ).refused("--train-tokens")
