"""The page of the scores and costs of one architecture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zerolm.report.page import Heading, page, section, table
from zerolm.report.phrases import cost_label, show_cost, show_score

TRUST: Final = (
    "A score without training ranks architectures of one space; its value has no unit, and says nothing of "
    "architectures of another space. `zerolm bench run --all` shows how well each score ranks trained ones."
)


def score_page(document: Mapping[str, Any], configuration: Mapping[str, Any] | None = None) -> str:
    """Return the page of the JSON of ``score --json``."""
    costs, expected = document["costs"], document.get("expected")
    heading = Heading(
        "zerolm score",
        str(document["space"]),
        str(document["shape"]),
        "; ".join(f"{cost_label(cost)} {show_cost(cost, value)}" for cost, value in costs.items()) + ".",
        f"A calibration expects {document['metric']} {expected['mean']:.4g} (90 %: {expected['low']:.4g} to "
        f"{expected['high']:.4g})."
        if expected
        else "One architecture alone has nothing to compare with: score others of its space beside it.",
        TRUST,
    )
    body = [
        section(
            "Scores",
            table(
                ("score", "options", "value"),
                [(row["score"], _options(row), show_score(row["value"])) for row in document["scores"]],
            ),
        ),
        section(
            "Costs",
            table(
                ("cost", "in short", "exactly"),
                [(cost_label(cost), show_cost(cost, value), f"{value:,}") for cost, value in costs.items()],
            ),
        ),
    ]
    return page(heading, body, configuration)


def _options(row: Mapping[str, Any]) -> str:
    alpha = {} if row["alpha"] is None else {"alpha": row["alpha"]}
    return ", ".join(f"{name} {value}" for name, value in (alpha | row.get("options", {})).items())
