"""What is expected of the architectures that a search found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from zerolm.architecture import Architecture, Bools
from zerolm.calibration.calibrate import Calibration
from zerolm.calibration.pool import Pool
from zerolm.scores import Batch, make_score
from zerolm.solvers.result import Choice, Expected, SearchResult

RANGES = ("depth", "width", "body_params")


def expected_of(calibration: Calibration, architectures: Sequence[Architecture]) -> list[Expected] | None:
    """Expected results in the unit of the metric; None with fewer labels than a predictor needs."""
    pool = Pool.of(architectures)
    found = calibration.predict(pool)
    if found is None:
        return None
    ends = (found.low, found.high) if calibration.labels.higher_is_better else (-found.high, -found.low)
    mean = found.mean if calibration.labels.higher_is_better else -found.mean
    outside = _outside(calibration.labels.pool.batch, pool.batch)
    return [
        Expected(float(centre), float(low), float(high), bool(beyond))
        for centre, low, high, beyond in zip(mean, *ends, outside, strict=True)
    ]


def _outside(labels: Batch, asked: Batch) -> Bools:
    """Which architectures lie beyond the labels in depth, width or body parameters, (n,)."""
    outside = np.zeros(len(asked.depths), np.bool_)
    for name in RANGES:
        known, values = make_score(name).of_many(labels), make_score(name).of_many(asked)
        outside |= (values < known.min()) | (values > known.max())
    return outside


def explained(result: SearchResult, calibration: Calibration) -> SearchResult:
    """The result of a search with what is expected of its pick and its best architectures."""
    labels = calibration.labels
    about = {
        "method": calibration.method,
        "metric": labels.metric,
        "higher_is_better": labels.higher_is_better,
        "labels": len(labels),
        "warnings": list(calibration.warnings),
    }
    choices = [result.pick, *result.best]
    found = expected_of(calibration, [choice.architecture for choice in choices])
    if found is None:
        return replace(result, calibration=about)
    pick, *best = (
        Choice(choice.architecture, choice.score, choice.costs, expected)
        for choice, expected in zip(choices, found, strict=True)
    )
    return replace(result, calibration=about, pick=pick, best=best)
