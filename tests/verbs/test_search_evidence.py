"""The counts of published results are those of the leaderboard."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from zerolm.verbs.search_words import VERDICTS, VIEWS, record_of

LEADERBOARD = Path(__file__).parents[2] / "benchmarks" / "leaderboard.md"


def test_the_leaderboard_says_the_same() -> None:
    if not LEADERBOARD.exists():
        pytest.skip("there is no leaderboard beside the tests")
    text = LEADERBOARD.read_text("utf-8").split("## Scores without labels")[1].split("\n## ")[0]
    assert text.count("\n### ") == VIEWS
    remarks: dict[str, Counter[str]] = {}
    for name, remark in re.findall(r"^\| ([^|]+?) \| .*\| ([^|]*?) ?\|$", text, re.MULTILINE):
        remarks.setdefault(name, Counter())[remark] += 1
    for score, (better, worse) in VERDICTS.items():
        assert sum(remarks[score].values()) == VIEWS
        assert (remarks[score][""], remarks[score]["not better"]) == (better, worse)


def test_a_record_says_what_is_not_shown() -> None:
    better, worse = VERDICTS["geo"]
    assert f"in {better} of {VIEWS} views, and is not shown to in {VIEWS - better - worse}" in record_of(
        "geo"
    )
    assert f"does not in {VERDICTS['log_complexity'][1]}." in record_of("log_complexity")
    assert "zerolm bench run --all" in record_of("another")
