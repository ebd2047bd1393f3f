"""Rival predictions of one result: uncalibrated sizes, the dictionary and a Gaussian process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.calibration.dictionary import Dictionary, fit_dictionary
from zerolm.calibration.gaussian import GaussianProcess
from zerolm.calibration.pool import SHAPE_FEATURES, ChoiceColumns, Labels, Pool, columns, part
from zerolm.scores import make_score

UNCALIBRATED: Final = ("geo", "body_params")
RIVALS: Final = (*UNCALIBRATED, "dictionary", "gp")
"""In the order of every vector of weights: two scores that no label made, and two that labels made."""
SETS: Final = (
    *("dictionary", "depth and width", "shapes", "shapes and choices", "shapes and slopes"),
    *UNCALIBRATED,
)
"""Sets of features of the Gaussian process; the labels decide which is believed."""
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


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale on which results are predicted: their own or, where all have one sign, the logarithmic."""

    logarithmic: bool
    sign: float

    def of(self, result: Floats) -> Floats:
        return self.sign * np.log(np.abs(result)) if self.logarithmic else result

    def result(self, value: Floats) -> Floats:
        """Return results from values of the scale."""
        return self.sign * np.exp(np.minimum(self.sign * value, 700.0)) if self.logarithmic else value


@dataclass(frozen=True, slots=True)
class FittedLine:
    """The least-squares line from a score to the target; a score never counts against itself: slope >= 0."""

    centre: float
    level: float
    slope: float

    @classmethod
    def fit(cls, score: Floats, target: Floats) -> FittedLine:
        centred = score - score.mean()
        square = float(centred @ centred)
        slope = float(centred @ target) / square if square > 1e-20 * float(score @ score) else 0.0
        return cls(float(score.mean()), float(target.mean()), max(slope, 0.0))

    def __call__(self, score: Floats) -> Floats:
        return self.level + self.slope * (score - self.centre)

    def left_out(self, score: Floats, target: Floats) -> Floats:
        """Return the prediction of each label by the line of the others, (n,), from the line's leverages."""
        centred = score - self.centre
        square = float(centred @ centred)
        leverage = 1.0 / len(score) + (centred**2 / square if self.slope else 0.0)
        return target - (target - self(score)) / np.maximum(1.0 - leverage, 1e-3)


@dataclass(frozen=True, eq=False)
class Rivals:
    """Predictions of ``RIVALS`` on the ``scale`` of their ``target`` (k,), all fitted to the same labels.

    With an ``alpha`` ZeroLM's score is one of them too, the last but one.
    """

    pool: Pool
    scale: Scale
    target: Floats
    dictionary: Dictionary
    vocabulary: ChoiceColumns
    process: GaussianProcess
    lines: tuple[FittedLine, ...]
    alpha: float | None

    @classmethod
    def fit(
        cls,
        pool: Pool,
        result: Floats,
        dictionary: Dictionary,
        scale: Scale | None = None,
        alpha: float | None = None,
    ) -> Rivals:
        """Fit to ``result`` (k,), "higher is better"; the scale is the likelier one unless it is given."""
        vocabulary = ChoiceColumns.of(pool.choices)
        features = _sets(pool, vocabulary, dictionary)
        if scale is None:
            scale, process = _likelier(features, result)
        else:
            process = GaussianProcess.fit(features, scale.of(result))
        target = scale.of(result)
        lines = tuple(FittedLine.fit(score, target) for score in _scores(pool, dictionary, alpha))
        return cls(pool, scale, target, dictionary, vocabulary, process, lines, alpha)

    def predict(self, pool: Pool) -> tuple[Floats, Floats]:
        """Return the rivals' predictions (4, n), (5, n) with an alpha, and the process's deviation (n,)."""
        mean, deviation = self.process.predict(_sets(pool, self.vocabulary, self.dictionary))
        scores = _scores(pool, self.dictionary, self.alpha)
        lines = (line(score) for line, score in zip(self.lines, scores, strict=True))
        return np.array([*lines, mean]), deviation

    def left_out(self) -> tuple[Floats, Floats]:
        """Return the same of each label by the others, (4, k) and (k,); the dictionary's entries stay."""
        mean, deviation = self.process.left_out()
        scores = _scores(self.pool, self.dictionary, self.alpha)
        rest = (line.left_out(score, self.target) for line, score in zip(self.lines, scores, strict=True))
        return np.array([*rest, mean]), deviation


def _likelier(features: Sequence[Floats], result: Floats) -> tuple[Scale, GaussianProcess]:
    process = GaussianProcess.fit(features, result)
    if result.min() > 0.0 or result.max() < 0.0:
        logarithmic = Scale(True, float(np.sign(result[0])))
        target = logarithmic.of(result)
        other = GaussianProcess.fit(features, target)
        if other.log_evidence - float(np.log(np.abs(result)).sum()) > process.log_evidence:
            return logarithmic, other
    return Scale(False, 1.0), process


def _scores(pool: Pool, dictionary: Dictionary, alpha: float | None) -> tuple[Floats, ...]:
    """Return the scores to fit lines to, (n,) each: logarithms of sizes, the dictionary's sum, ZeroLM's."""
    sizes = (pool.shapes[:, SHAPE_FEATURES.index(name)] for name in UNCALIBRATED)
    zerolm = () if alpha is None else (make_score("zerolm", alpha=alpha).of_many(pool.batch),)
    return (*sizes, dictionary.placed(pool.entries), *zerolm)


def _sets(pool: Pool, vocabulary: ChoiceColumns, dictionary: Dictionary) -> Sequence[Floats]:
    shapes = pool.shapes
    means, slopes = (columns(pool.choices, names) for names in (vocabulary.means, vocabulary.slopes))
    return (
        dictionary.placed(pool.entries)[:, None],
        shapes[:, :2],
        shapes,
        np.hstack([shapes, means]),
        np.hstack([shapes, slopes]),
        *(shapes[:, [SHAPE_FEATURES.index(name)]] for name in UNCALIBRATED),
    )


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
