"""The result of ``zerolm score``: an architecture with its costs and scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final, Self

from zerolm.cost_columns import column_of, cost_label, shown_costs
from zerolm.groundtruth.truth import Line
from zerolm.show.sheet import NOTEBOOK, PAGE, TERMINAL, Heading, Row, Sheet
from zerolm.show.text import clipped, show_cost, show_score
from zerolm.solvers.result import Expected
from zerolm.verbs.report import Report

TRUST: Final = (
    "A score without training ranks architectures of one space; its value has no unit, and says nothing of "
    "architectures of another space. zerolm bench run --all shows how well each score ranks trained ones."
)
ALONE: Final = "One architecture alone has nothing to compare with: score others of its space, too."
IN_A_LINE: Final = 4
"""Scores in a line of ``repr``."""


@dataclass(frozen=True)
class ScoreValue:
    """One score of the architecture, higher expected to be better; ``options`` are those other than alpha."""

    score: str
    alpha: float | None
    value: float
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Return a row of ``scores_of``, whose alpha may be an integer."""
        alpha = None if row["alpha"] is None else float(row["alpha"])
        return cls(row["score"], alpha, row["value"], row.get("options", {}))

    @property
    def options_text(self) -> str:
        options = ({} if self.alpha is None else {"alpha": self.alpha}) | self.options
        return ", ".join(f"{option} {value}" for option, value in options.items())

    @property
    def label(self) -> str:
        return f"{self.score} ({self.options_text})" if self.options_text else self.score

    def to_json(self) -> dict[str, Any]:
        row = {"score": self.score, "alpha": self.alpha, "value": self.value}
        return {**row, "options": self.options} if self.options else row


@dataclass(frozen=True, repr=False, eq=False)
class ScoreReport(Report):
    """An architecture by its space, choices and shape in words, with its costs and scores.

    ``metric`` and ``expected`` are what a calibration expects, None without one or with too few labels.
    ``left_out`` names the scores that were not computed, with the reason; it is no part of the JSON.
    """

    command: ClassVar[str] = "score"
    space: Line
    architecture: dict[str, Any]
    shape: str
    costs: dict[str, int]
    scores: list[ScoreValue]
    metric: str | None = None
    expected: Expected | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "space": self.space,
            "architecture": self.architecture,
            "shape": self.shape,
            "costs": self.costs,
            "scores": self.rows(),
        }
        if self.metric is not None:
            document["metric"] = self.metric
            document["expected"] = asdict(self.expected) if self.expected else None
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        report = super().from_json(document)
        for cost in report.costs:
            column_of(cost)
        return report

    def rows(self) -> list[dict[str, Any]]:
        return [score.to_json() for score in self.scores]

    @property
    def remarks(self) -> list[str]:
        return [f"{name} is left out: {reason}" for name, reason in self.left_out.items()]

    def lines(self) -> list[str]:
        return [
            f"{self.space}: {self.shape}",
            f"{', '.join(self._costs())}",
            *([f"expected {self.metric}: {self.expected}"] if self.expected else []),
        ]

    def __repr__(self) -> str:
        """Return the lines and the scores, which the terminal shows as a table."""
        scores = [f"{score.label} {show_score(score.value)}" for score in self.scores]
        places = range(0, len(scores), IN_A_LINE)
        return clipped([*self.lines(), *(", ".join(scores[i : i + IN_A_LINE]) for i in places)])

    def _costs(self) -> list[str]:
        return [f"{cost_label(cost)} {show_cost(cost, self.costs[cost])}" for cost in self._shown()]

    def _shown(self) -> tuple[str, ...]:
        return shown_costs(self.costs, [self.costs])

    def heading(self) -> Heading:
        expected = f"A calibration expects {self.metric} {self.expected}." if self.expected else ALONE
        return Heading(self.space, self.shape, f"{'; '.join(self._costs())}.", expected, TRUST)

    def sheets(self) -> list[Sheet]:
        scores = [[one.score, one.options_text, show_score(one.value)] for one in self.scores]
        costs: list[Row] = [
            [cost_label(cost), show_cost(cost, self.costs[cost]), f"{self.costs[cost]:,}"]
            for cost in self._shown()
        ]
        return [
            Sheet("Scores", ["score", "options", "value"], scores, on=(PAGE, TERMINAL, NOTEBOOK)),
            Sheet("Costs", ["cost", "in short", "exactly"], costs),
        ]
