"""The results to expect of architectures that a search chose, and where that goes beyond the labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from zerolm.architecture import Architecture, Bools, Floats
from zerolm.calibration.calibrate import Calibration
from zerolm.calibration.pool import ChoiceColumns, Labels, Pool, columns
from zerolm.calibration.rivals import RANGES
from zerolm.costs import CostModel
from zerolm.scores import ScoreBatch, make_score
from zerolm.solvers.result import BestLabel, Choice, Expected, Question, SearchResult

NAMED: Final = 4
"""Ranges that a warning names."""


def expected_of(calibration: Calibration, architectures: Sequence[Architecture]) -> list[Expected] | None:
    """Return expected results in the unit of the metric; None with fewer labels than a predictor needs."""
    pool = Pool.of(architectures)
    predicted = calibration.predict(pool)
    if predicted is None:
        return None
    sign = 1.0 if calibration.labels.higher_is_better else -1.0
    ends = (predicted.low, predicted.high)[:: int(sign)]
    outside = np.any(list(beyond(calibration.labels, pool).values()), axis=0)
    return [
        Expected(float(sign * mean), float(sign * low), float(sign * high), bool(extrapolated))
        for mean, low, high, extrapolated in zip(predicted.mean, *ends, outside, strict=True)
    ]


def beyond(labels: Labels, pool: Pool) -> dict[str, Bools]:
    """Return which architectures (n,) lie beyond all labels: in ``RANGES``, ratios and each varied choice.

    Labels that all have one ratio say nothing of another, though no size of it is new.
    """
    labelled, names = labels.pool, ChoiceColumns.of(labels.pool.choices).means
    sizes = {name: make_score(name) for name in RANGES}
    outside = {
        name: _outside(score.of_many(labelled.batch), score.of_many(pool.batch))
        for name, score in sizes.items()
    }
    pairs = zip(names, columns(labelled.choices, names).T, columns(pool.choices, names).T, strict=True)
    outside |= {name: _outside(values, others) for name, values, others in pairs}
    ratios = (ratio_columns(labelled.batch), ratio_columns(pool.batch))
    return outside | {name: _outside(ratios[0][name], ratios[1][name]) for name in ratios[0]}


def ratio_columns(batch: ScoreBatch) -> dict[str, Floats]:
    """Return ratios of n architectures, (n,) each: of widths to depth, FFN to attention, queries to keys."""
    shapes = batch.shapes
    sums = {
        "ffn": (shapes.weights * shapes.ffn).sum(axis=1),
        "attention": (shapes.weights * shapes.attention).sum(axis=1),
        "queries": shapes.query_width,
        "keys": shapes.kv_width,
    }
    starts = np.cumsum(batch.depths) - batch.depths
    totals = {name: np.maximum(np.add.reduceat(values, starts), 1) for name, values in sums.items()}
    return {
        "hidden / depth": np.asarray(batch.widths / batch.depths),
        "ffn / attention": np.asarray(totals["ffn"] / totals["attention"]),
        "heads / kv heads": np.asarray(totals["queries"] / totals["keys"]),
    }


def _outside(labelled: Floats, values: Floats) -> Bools:
    low, high = labelled.min(), labelled.max()
    margin = 1e-9 * max(abs(low), abs(high))
    return np.asarray((values < low - margin) | (values > high + margin), np.bool_)


def explained(result: SearchResult, calibration: Calibration) -> SearchResult:
    """Return the result of a search with the findings of its labels: expectations, warnings, and their
    best."""
    labels = calibration.labels
    about: dict[str, Any] = {
        "method": calibration.method,
        "metric": labels.metric,
        "higher_is_better": labels.higher_is_better,
        "labels": len(labels),
        "weights": calibration.weights or None,
        "warnings": [*calibration.warnings, *_leaving(result, labels)],
    }
    label = best_label(result.question, calibration)
    result = replace(result, calibration=about, best_label=label)
    compared = [result.baseline.choice] if result.baseline else []
    choices = [result.pick, *compared, *result.best, *(baseline.choice for baseline in result.baselines)]
    expectations = expected_of(calibration, [choice.architecture for choice in choices])
    if expectations is None:
        return result
    pick, *others = (
        replace(choice, expected=expected) for choice, expected in zip(choices, expectations, strict=True)
    )
    if result.baseline:
        baseline = replace(result.baseline, choice=others.pop(0))
        result = replace(result, question=replace(result.question, baseline=baseline))
    best, chosen = others[: len(result.best)], others[len(result.best) :]
    baselines = [
        replace(baseline, choice=choice) for baseline, choice in zip(result.baselines, chosen, strict=True)
    ]
    return replace(result, pick=pick, best=best, baselines=baselines)


def best_label(question: Question, calibration: Calibration) -> BestLabel | None:
    """Return the labelled architecture of the best result within the budgets; None if none keeps them."""
    labels, model = calibration.labels, CostModel(**question.conditions)
    sign = 1.0 if labels.higher_is_better else -1.0
    for place in np.argsort(-labels.result, kind="stable"):
        architecture = labels.pool.architectures[place]
        costs = model.of(architecture)
        within = (
            costs[name[4:]] <= limit if name.startswith("max_") else costs[name[4:]] >= limit
            for name, limit in question.budgets.items()
        )
        if all(within):
            score = float(calibration.rank(labels.pool.take([int(place)]))[0])
            return BestLabel(Choice(architecture, score, costs), float(sign * labels.result[place]))
    return None


def _leaving(result: SearchResult, labels: Labels) -> list[str]:
    """Return a warning where the pick or the best lie beyond all labels."""
    chosen = [result.pick, *result.best]
    outside = beyond(labels, Pool.of([choice.architecture for choice in chosen]))
    subject, names = "the pick lies", [name for name, values in outside.items() if values[0]]
    if not names:
        count = int(np.any(list(outside.values()), axis=0).sum())
        subject = f"{count} of the {len(result.best)} best lie"
        names = [name for name, values in outside.items() if values.any()]
    if not names:
        return []
    ranges = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    return [f"{subject} beyond all labels in {ranges}: nothing that was trained supports the ranking there"]
