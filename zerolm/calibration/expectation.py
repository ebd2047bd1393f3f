"""What is expected of the architectures that a search found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from zerolm.architecture import Architecture, Bools, Floats
from zerolm.calibration.calibrate import Calibration
from zerolm.calibration.features import Vocabulary, columns
from zerolm.calibration.pool import Pool
from zerolm.scores import make_score
from zerolm.solvers.result import Expected, SearchResult

RANGES = ("depth", "width", "body_params")


def expected_of(calibration: Calibration, architectures: Sequence[Architecture]) -> list[Expected] | None:
    """Expected results in the unit of the metric; None with fewer labels than a predictor needs."""
    pool = Pool.of(architectures)
    found = calibration.predict(pool)
    if found is None:
        return None
    ends = (found.low, found.high) if calibration.labels.higher_is_better else (-found.high, -found.low)
    mean = found.mean if calibration.labels.higher_is_better else -found.mean
    outside = _outside(calibration, pool)
    return [
        Expected(float(centre), float(low), float(high), bool(beyond))
        for centre, low, high, beyond in zip(mean, *ends, outside, strict=True)
    ]


def _outside(calibration: Calibration, asked: Pool) -> Bools:
    """Which architectures lie beyond all labels in depth, width, body parameters or a choice, (n,)."""
    labels = calibration.labels.pool
    outside = np.zeros(len(asked), np.bool_)
    for name in RANGES:
        score = make_score(name)
        outside |= _beyond(score.of_many(labels.batch), score.of_many(asked.batch))
    names = Vocabulary.of(labels.choices).means
    for known, values in zip(columns(labels.choices, names).T, columns(asked.choices, names).T, strict=True):
        outside |= _beyond(known, values)
    return outside


def _beyond(known: Floats, values: Floats) -> Bools:
    return np.asarray((values < known.min()) | (values > known.max()), np.bool_)


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
    choices = [result.pick, *result.best, *(baseline.choice for baseline in result.baselines)]
    found = expected_of(calibration, [choice.architecture for choice in choices])
    if found is None:
        return replace(result, calibration=about)
    pick, *others = (
        replace(choice, expected=expected) for choice, expected in zip(choices, found, strict=True)
    )
    best, chosen = others[: len(result.best)], others[len(result.best) :]
    baselines = [
        replace(baseline, choice=choice) for baseline, choice in zip(result.baselines, chosen, strict=True)
    ]
    return replace(result, calibration=about, pick=pick, best=best, baselines=baselines)
