"""How far each rival is trusted: stacked regression on hidden labels.

Weights are non-negative least squares from predictions of hidden labels to their results (Breiman,
Stacked regressions, 1996), drawn towards equal ones. Hidden are random thirds, and the thirds that lie
beyond the others in depth, width and parameters: for a search goes where the labels end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.calibration.dictionary import fit_dictionary
from zerolm.calibration.features import SHAPE_FEATURES
from zerolm.calibration.labels import Labels, part
from zerolm.calibration.rivals import RIVALS, Rivals, Scale

LEAST_STACKED: Final = 12
"""Labels from which some are hidden; below it all rivals count the same."""
FEW_LABELS: Final = 100
"""Labels up to which chance matters more than time: splits and folds are repeated."""
STACKING_SPLITS: Final = (12, 4)
"""Random splits, of few and of many labels."""
RANGES: Final = ("depth", "width", "body_params")
"""Sizes beyond which a search may lead."""
SHRINKAGE: Final = 2.0
"""The number of labels that the prior of equal weights counts as."""


def stacked_weights(labels: Labels, scale: Scale, seed: int) -> Floats:
    """Return the weight of each rival, (4,), together 1; equal ones where the labels are too few to hide."""
    equal = np.full(len(RIVALS), 1.0 / len(RIVALS))
    target = scale.of(labels.result)
    level, spread = target.mean(), target.std()
    rows, results = [], []
    for hidden in _hidden(labels, seed) if len(labels) >= LEAST_STACKED else ():
        seen = part(labels, np.setdiff1d(np.arange(len(labels)), hidden))
        if not seen.varied:
            continue
        try:
            dictionary = fit_dictionary(seen.pool.entries, seen.result)
        except ValueError:  # these labels alone do not tell the closed forms apart
            continue
        rivals = Rivals.fit(seen.pool, seen.result, dictionary, scale)
        rows.append((rivals.predict(labels.pool.take(hidden))[0].T - level) / spread)
        results.append((target[hidden] - level) / spread)
    if not rows:
        return equal
    predictions, targets = np.concatenate(rows), np.concatenate(results)
    pull = np.sqrt(SHRINKAGE * len(targets) / len(labels))
    from scipy.optimize import nnls  # heavy, and needed only here

    weights, _ = nnls(np.vstack([predictions, pull * np.eye(len(RIVALS))]), np.append(targets, pull * equal))
    return np.asarray(weights / weights.sum()) if weights.sum() > 0.0 else equal


def _hidden(labels: Labels, seed: int) -> Iterator[Ints]:
    """Return thirds of the labels: random ones, and the largest by each of ``RANGES``."""
    generator = np.random.default_rng(seed)
    n = len(labels)
    for _ in range(STACKING_SPLITS[n > FEW_LABELS]):
        yield generator.permutation(n)[: n // 3]
    for name in RANGES:
        order = generator.permutation(n)  # of equal sizes any may be hidden
        sizes = labels.pool.shapes[order, SHAPE_FEATURES.index(name)]
        yield order[np.argsort(-sizes, kind="stable")][: n // 3]
