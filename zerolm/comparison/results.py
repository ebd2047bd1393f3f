"""The numbers of a comparison of scores with benchmarks, as JSON, in order, and by score."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any, Final

from zerolm.architecture import Floats
from zerolm.groundtruth.truth import GroundTruth
from zerolm.io.brief import brief
from zerolm.statistics import Ceiling, budget_ladder, random_regret

ALIKE: Final = 0.05
"""The share of total parameters within which networks are of about equal size."""
Key = tuple[str, float | str | None]
"""A score and its alpha: the same on all benchmarks, for the best alpha has one name."""


@dataclass(frozen=True, slots=True)
class Published:
    """Kendall's tau and Spearman's rho as their source prints them (None: not given), and the source."""

    tau: float | None
    rho: float | None
    by: str


BEST: Final[dict[tuple[str, str | None], Published]] = {
    ("flexibert_glue", "declared"): Published(
        0.695, 0.884, "NSC (arXiv 2609.23087), second hand; not reproduced by spectral_capacity"
    ),
    ("flexibert_glue", "published"): Published(0.532, 0.765, "ZeroLM (arXiv 2503.18646)"),
    ("gpt2_wt103", None): Published(0.886, 0.980, "LPZero"),
}
"""The best agreement that others have published on a benchmark in a view."""


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """Agreement of one score with one benchmark in one view. None stands for what is not defined.

    ``alpha`` is None for scores without one, and ``best`` where it was chosen by the labels themselves:
    then ``best_alpha`` names it. ``saw_labels`` is set there, and where constants were fitted to the
    benchmark. ``_low`` and ``_high`` bound 95 % bootstrap intervals. ``gain`` is the tau-b beyond that of
    ``body_params``, its interval paired. ``verdict`` is ``better`` where the whole interval lies above 0 and
    ``params`` is beaten too, ``not better`` where one of them has at least the same tau-b, else ``unclear``.
    ``within_budget`` is tau-b within deciles of body parameters, ``top_overlap`` the share of the best tenth
    among the highest-scored tenth, ``regret_1`` and ``regret_5`` the loss of quality under budgets (in the
    unit of the metric).
    ``pairs`` counts the pairs of about equal size (``Section.alike``), ``pairs_right`` is the share of them
    that is ordered as the results are, ties counted half.
    """

    benchmark: str
    view: str | None
    metric: str
    score: str
    alpha: float | str | None
    n: int
    tau: float | None
    tau_low: float | None
    tau_high: float | None
    tau_random_ties: float | None
    rho: float | None
    rho_low: float | None
    rho_high: float | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    within_budget: float | None
    top_overlap: float
    regret_1: float
    regret_5: float
    baseline: bool
    verdict: str | None
    saw_labels: bool = False
    best_alpha: float | None = None
    pairs_right: float | None = None
    pairs: int = 0

    @property
    def label(self) -> str:
        """The score with its alpha."""
        if self.alpha is None:
            return self.score
        return f"{self.score} {self.alpha}" + ("" if self.best_alpha is None else f" ({self.best_alpha:g})")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class AlphaPoint:
    """tau-b of ``zerolm`` at one alpha; ``level`` where the best alpha is not shown to be better."""

    alpha: float
    tau: float | None
    low: float | None
    high: float | None
    level: bool


@dataclass(frozen=True, eq=False, repr=False)
class Section:
    """One benchmark in one view: its rows, and what the report draws.

    ``result`` (n,) is signed so that higher is better; ``scores`` and ``regrets`` (19,) go by the rows'
    labels; ``left_out`` says why a score has no row.
    """

    truth: GroundTruth
    view: str | None
    metric: str
    rows: list[ScoreRow]
    ceiling: Ceiling | None
    curve: list[AlphaPoint]
    result: Floats
    scores: dict[str, Floats]
    regrets: dict[str, Floats]
    left_out: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        networks = f"{len(self.result)} networks by {self.metric}"
        return brief(self, self.title, f"{len(self.rows)} scores of {networks}")

    @property
    def title(self) -> str:
        return self.truth.name + (f", view {self.view}" if self.view else "")

    @property
    def alike(self) -> str:
        """Return which pairs count as of about equal size."""
        groups = {entry.group for entry in self.truth.architectures} - {None}
        return f"within {len(groups)} groups" if groups else f"within {100 * ALIKE:g} % of total parameters"

    @property
    def published(self) -> Published | None:
        """Return the best agreement that others have published by the benchmark's own metric."""
        return BEST.get((self.truth.name, self.view)) if self.metric == self.truth.metric else None

    @property
    def budgets(self) -> Floats:
        """Return the budgets of body parameters under which regret is measured, (19,)."""
        return budget_ladder(self.scores["body_params"])

    @property
    def random_regret(self) -> tuple[float, float]:
        """Return the regret of a random choice, and of the best of five."""
        cost = self.scores["body_params"]
        return random_regret(self.result, cost, 1), random_regret(self.result, cost, 5)

    @property
    def plateau(self) -> tuple[float, float] | None:
        """The stretch of alphas around the best one that are level with it."""
        taus = [-math.inf if point.tau is None else point.tau for point in self.curve]
        best = max(range(len(taus)), key=lambda i: taus[i])
        if not self.curve[best].level:
            return None
        low = high = best
        while low > 0 and self.curve[low - 1].level:
            low -= 1
        while high < len(taus) - 1 and self.curve[high + 1].level:
            high += 1
        return self.curve[low].alpha, self.curve[high].alpha

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON of all but the rows; ``scores`` are the values of all architectures by label."""
        return {
            "benchmark": self.truth.name,
            "view": self.view,
            "metric": self.metric,
            "n": len(self.result),
            "source": self.truth.source,
            "random_regret": list(self.random_regret),
            "ceiling": asdict(self.ceiling) if self.ceiling else None,
            "published": asdict(self.published) if self.published else None,
            "alpha_curve": [asdict(point) for point in self.curve],
            "alpha_plateau": list(self.plateau) if self.plateau else None,
            "budgets": self.budgets.tolist(),
            "left_out": self.left_out,
            "pairs": self.alike,
            "regret_by_budget": {label: curve.tolist() for label, curve in self.regrets.items()},
            "scores": {label: values.tolist() for label, values in self.scores.items()},
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """Scores compared with benchmarks: a section for each benchmark and view, and a word on the scores."""

    sections: list[Section]
    note: str = ""

    @property
    def rows(self) -> list[ScoreRow]:
        return [row for section in self.sections for row in section.rows]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, as ``zerolm bench run --json`` prints it.

        ``benchmarks`` are the files that were read, with the one result that counted, and the number of
        ``sections`` that are of each.
        """
        benchmarks = []
        for _, group in groupby(self.sections, lambda section: id(section.truth)):
            views = list(group)
            truth, metric = views[0].truth.model_dump(), views[0].metric
            for entry in truth["architectures"]:
                entry["results"] = {metric: entry["results"][metric]}
            benchmarks.append({"sections": len(views), "benchmark": truth})
        return {
            "rows": [row.to_json() for row in self.rows],
            "sections": [section.to_json() for section in self.sections],
            "benchmarks": benchmarks,
            **({"note": self.note} if self.note else {}),
        }


def key_of(row: ScoreRow) -> Key:
    """Return the key of a row."""
    return row.score, row.alpha


def name_of(key: Key) -> str:
    """Return the name of a score, with its alpha."""
    return key[0] if key[1] is None else f"{key[0]} {key[1]}"


def standings(comparison: Comparison) -> dict[Key, list[tuple[Section, ScoreRow]]]:
    """Return the rows of each score."""
    rows: dict[Key, list[tuple[Section, ScoreRow]]] = {}
    for section in comparison.sections:
        for row in section.rows:
            rows.setdefault(key_of(row), []).append((section, row))
    return rows


def row_of(section: Section, score: str, *, saw_labels: bool = False) -> ScoreRow | None:
    """Return the row of a score without alpha, or of the best alpha; None where there is none."""
    rows = (row for row in section.rows if row.score == score and row.saw_labels == saw_labels)
    return next((row for row in rows if saw_labels or row.alpha is None), None)


def label_free(section: Section) -> list[ScoreRow]:
    """Return the scores that a user can have without labels, best first; no baselines."""
    rows = (row for row in section.rows if not row.baseline and not row.saw_labels and row.tau is not None)
    return sorted(rows, key=_falling)


def by_tau(section: Section) -> list[ScoreRow]:
    """Return all rows, best first, those without a tau-b last."""
    return sorted(section.rows, key=_falling)


def _falling(row: ScoreRow) -> float:
    return 2.0 if row.tau is None else -row.tau


def in_own_unit(section: Section) -> Floats:
    """Return the results (n,) as the file gives them."""
    return section.result if section.truth.is_higher_better(section.metric) else -section.result
