"""How a calibration does on labels that were hidden from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Floats
from zerolm.calibration.calibrate import LABELS_NEEDED, fitted
from zerolm.calibration.pool import Labels, part
from zerolm.calibration.rivals import FEW_LABELS, UNCALIBRATED
from zerolm.progress import Progress, silent
from zerolm.scores import make_score
from zerolm.statistics import kendall

FOLDS: Final = 5
REPEATS: Final = (4, 1)
"""How often the folds are dealt, of few and of many labels."""


@dataclass(frozen=True)
class Judgement:
    """How a calibration does on labels that were hidden from it, means over folds.

    ``tau`` is its tau-b, ``deviation`` that of a fold's, ``baselines`` those of uncalibrated scores on the
    same folds. ``coverage`` is the share of hidden results within their 90 % interval, ``width`` the
    intervals' mean width in the unit of the result, ``label_width`` that of the interval from the second
    smallest to the second largest label. None where nothing is defined.
    """

    folds: int
    tau: float | None
    deviation: float | None
    baselines: dict[str, float | None]
    coverage: float | None
    width: float | None
    label_width: float | None

    @property
    def not_beaten(self) -> list[str]:
        """The uncalibrated scores that rank the hidden labels at least as well."""
        if self.tau is None:
            return []
        return [name for name, tau in self.baselines.items() if tau is not None and tau >= self.tau]


def judge(
    labels: Labels,
    method: str = "stack",
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> Judgement:
    """Cross-validation of the whole of ``calibrate``, the weights of ``stack`` included.

    Five folds, dealt four times (once of more than a hundred labels); each is ranked and predicted by a
    calibration of the other four.
    """
    generator = np.random.default_rng(seed)
    names = UNCALIBRATED
    taus: list[list[float]] = []
    inside: list[float] = []
    widths: list[float] = []
    label_widths: list[float] = []
    repeats = REPEATS[len(labels) > FEW_LABELS]
    for repeat in range(repeats):
        order = generator.permutation(len(labels))
        for fold in range(FOLDS):
            progress("judging on hidden labels", repeat * FOLDS + fold, repeats * FOLDS)
            hidden = order[fold::FOLDS]
            seen = np.setdiff1d(order, hidden)
            if len(seen) < LABELS_NEEDED[method] or len(hidden) < 2 or not part(labels, seen).varied:
                continue
            try:
                calibration = fitted(part(labels, seen), method, seed)
            except ValueError:  # these labels alone do not tell what the method needs
                continue
            pool, result = labels.pool.take(hidden), labels.result[hidden]
            scores = [calibration.rank(pool), *(make_score(name).of_many(pool.batch) for name in names)]
            taus.append([float(tau) for tau in kendall(np.array(scores), result)])
            prediction = calibration.predict(pool)
            if prediction:
                inside += ((prediction.low <= result) & (result <= prediction.high)).tolist()
                widths.append(float(np.mean(prediction.high - prediction.low)))
                ordered = np.sort(labels.result[seen])
                label_widths.append(float(ordered[-2] - ordered[1]))
    columns = np.array(taus).reshape(len(taus), 1 + len(names))
    means = [_mean(column[~np.isnan(column)]) for column in columns.T]
    fold_taus = columns[:, 0][~np.isnan(columns[:, 0])]
    return Judgement(
        len(taus),
        means[0],
        float(fold_taus.std()) if len(fold_taus) else None,
        dict(zip(names, means[1:], strict=True)),
        _mean(np.array(inside)),
        _mean(np.array(widths)),
        _mean(np.array(label_widths)),
    )


def _mean(values: Floats) -> float | None:
    return float(np.mean(values)) if len(values) else None
