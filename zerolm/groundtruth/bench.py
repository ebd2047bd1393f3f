"""How well the closed-form scores rank architectures whose trained results are published."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from zerolm.architecture import Floats
from zerolm.groundtruth.reader import GroundTruth, data_folder, known_names, locate, quality, read, views
from zerolm.scores import Batch, make_score, score_names, score_options
from zerolm.spaces.document import ALPHAS
from zerolm.statistics import Agreement, agreement

GRID: Final = tuple(round(step / 10, 1) for step in range(-15, 16))
"""The alphas among which ``best`` is chosen (ZeroLM, Algorithm 1)."""


@dataclass(frozen=True, slots=True)
class Row:
    """Agreement of one score with one benchmark in one view.

    ``alpha`` is None for scores without one, and ``best`` where it was chosen by the labels themselves:
    then ``saw_labels`` is set and ``best_alpha`` names it.
    """

    benchmark: str
    view: str | None
    metric: str
    score: str
    alpha: float | str | None
    n: int
    tau: float | None
    tau_random_ties: float | None
    rho: float | None
    baseline: bool
    saw_labels: bool = False
    best_alpha: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def bench(
    names: Sequence[str],
    *,
    data: str | None = None,
    metric: str | None = None,
    alphas: Sequence[float] = ALPHAS,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Agreement of every closed-form score with benchmarks, named or given as files.

    ``metric`` is the file's own unless named. Everything is read and checked before anything is scored.
    """
    if not names:
        raise ValueError(f"no benchmark is named; there are {', '.join(known_names(data_folder(data)))}")
    truths = [read(locate(name, data)) for name in names]
    results = [quality(truth, metric or truth.metric) for truth in truths]
    rows: list[Row] = []
    for truth, result in zip(truths, results, strict=True):
        for view in views(truth):
            progress(f"scoring {truth.name}" + (f", view {view.name}" if view.name else ""))
            rows += _rows(
                truth, view.name, metric or truth.metric, Batch.of(view.architectures), result, alphas
            )
    return rows


def _rows(
    truth: GroundTruth, view: str | None, metric: str, batch: Batch, result: Floats, alphas: Sequence[float]
) -> list[Row]:
    def row(score: str, alpha: float | str | None, found: Agreement, **marks: Any) -> Row:
        tau, tau_random, rho = (
            None if math.isnan(x) else x for x in (found.tau, found.tau_random_ties, found.rho)
        )
        return Row(truth.name, view, metric, score, alpha, found.n, tau, tau_random, rho, **marks)

    rows = []
    for name in score_names():
        if "alpha" not in score_options(name):
            made = make_score(name)
            rows.append(row(name, None, agreement(made.of_many(batch), result), baseline=made.baseline))
            continue
        found = {
            alpha: agreement(make_score(name, alpha=alpha).of_many(batch), result)
            for alpha in dict.fromkeys([*alphas, *GRID])
        }
        rows += [row(name, alpha, found[alpha], baseline=False) for alpha in alphas]
        best = max(GRID, key=lambda alpha: -math.inf if math.isnan(found[alpha].tau) else found[alpha].tau)
        rows.append(row(name, "best", found[best], baseline=False, saw_labels=True, best_alpha=best))
    return rows
