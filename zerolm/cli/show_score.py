"""The terminal's view of the scores of one architecture."""

from __future__ import annotations

from zerolm.api.score import ScoreReport
from zerolm.report.phrases import cost_label, show_cost, show_expected, show_score


def show(result: ScoreReport) -> None:
    """Print the shape, each cost and each score on a line."""
    print(f"{result.space}: {result.shape}")
    for cost, value in result.costs.items():
        print(f"  {cost_label(cost):<18} {show_cost(cost, value):>10}  ({value:,})")
    for row in result.scores:
        print(f"  {row.label:<22} {show_score(row.value)}")
    if result.metric is not None and result.expected:
        print(f"  expected {result.metric}: {show_expected(result.expected)}")
