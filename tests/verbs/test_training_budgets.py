"""Budgets of training: what they become, what is told of them, and what contradicts."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import Zerolm
from small_searches import FEW

import zerolm
from zerolm.cost_columns import TRAINING
from zerolm.pretraining import OPERATIONS, chinchilla
from zerolm.verbs.search_report import SearchReport


def searched(**more: Any) -> SearchReport:
    report: SearchReport = zerolm.search("llama", **{**FEW, **more})
    return report


def test_operations_and_tokens_are_a_budget_of_macs() -> None:
    report = searched(max_train_flops=1e18, train_tokens="10B")
    limit = int(1e18) // (OPERATIONS * 10**10)
    assert report.question.budgets == {"max_macs": limit}
    assert report.pick.costs["macs"] <= limit
    assert report.to_json()["training"] == {"tokens": 10**10, "max_flops": 1e18, "law": ""}
    assert SearchReport.from_json(report.to_json()).question.training == report.question.training
    smaller = searched(max_train_flops=1e18, train_tokens="10B", max_macs="10M")
    assert smaller.question.budgets == {"max_macs": 10_000_000}


def test_without_tokens_they_are_as_many_as_are_best() -> None:
    report = searched(max_train_flops=5e16)
    plan = report.question.training
    assert plan is not None
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


def test_a_baseline_has_memory_of_training_too(zerolm: Zerolm) -> None:
    zerolm("search", "--baseline", "SmolLM2-135M", "--max-train-bytes", "1GB").refused(
        "the baseline SmolLM2-135M needs", TRAINING
    )


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ("--max-train-flops", "1e5", "--train-tokens", "1B"),
            "give at least 6e+09, or fewer --train-tokens",
        ),
        (
            ("--max-train-flops", "1e19", "--train-tokens", "100T"),
            "--max-macs is --max-train-flops 1e+19 over",
        ),
        (("--max-train-flops", "0"), "--max-train-flops must be"),
        (("--train-tokens", "0"), "--train-tokens must be"),
        (("--max-train-bytes", "1"), "would have to be at least"),
    ],
)
def test_what_contradicts_is_one_line(flags: tuple[str, ...], words: str, zerolm: Zerolm) -> None:
    zerolm("search", "llama", *flags).refused(words)


def test_memory_of_a_space_that_is_not_known_is_refused(zerolm: Zerolm) -> None:
    zerolm("search", "gpt2-uniform", "--max-train-bytes", "4GB").refused(
        "known of llama, qwen3, not of gpt2-uniform"
    )


def test_vocabularies_and_budgets_of_training_are_apart(zerolm: Zerolm) -> None:
    listed = ("--vocabularies", "300,400", "--text", "x.txt")
    zerolm("search", "llama", "--max-train-flops", "1e18", *listed).refused("one vocabulary")
