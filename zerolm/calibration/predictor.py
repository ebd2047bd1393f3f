"""Predicted results with intervals, from few labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Floats
from zerolm.calibration.dictionary import Dictionary
from zerolm.calibration.features import Vocabulary, columns
from zerolm.calibration.gaussian import GaussianProcess
from zerolm.calibration.pool import Pool

LEVEL: Final = 0.9
SETS: Final = ("dictionary", "depth and width", "shapes", "shapes and choices", "shapes and slopes")
"""What the Gaussian processes see; which set is believed is decided by the labels."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected results (n,), "higher is better", and the interval that holds 90 % of them."""

    mean: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False)
class Predictor:
    """A Gaussian process on features of shapes and choices, with intervals of honest width.

    Results that are all positive or all negative are also tried on a logarithmic scale; the labels decide.
    The intervals are the process's own, widened or narrowed by the errors it makes at each label when
    that label is left out (jackknife, Barber et al., Predictive inference with the jackknife+, 2021).
    """

    vocabulary: Vocabulary
    dictionary: Dictionary
    process: GaussianProcess
    logarithmic: bool
    sign: float
    factor: float

    @classmethod
    def fit(cls, pool: Pool, result: Floats, dictionary: Dictionary) -> Predictor:
        vocabulary = Vocabulary.of(pool.choices)
        features = _sets(pool, vocabulary, dictionary)
        process, logarithmic, sign = GaussianProcess.fit(features, result), False, 1.0
        if result.min() > 0.0 or result.max() < 0.0:
            sign = float(np.sign(result[0]))
            logs = np.log(np.abs(result))
            other = GaussianProcess.fit(features, sign * logs)
            if other.log_evidence - float(logs.sum()) > process.log_evidence:
                process, logarithmic = other, True
        target = sign * np.log(np.abs(result)) if logarithmic else result
        mean, deviation = process.left_out()
        errors = np.sort(np.abs(target - mean) / deviation)
        # One rank more than the level asks for: the process has seen each label when it was weighed.
        rank = min(len(errors), math.ceil(LEVEL * (len(errors) + 1)) + 1)
        return cls(vocabulary, dictionary, process, logarithmic, sign, float(errors[rank - 1]))

    def shares(self) -> dict[str, float]:
        """How far each set of features is believed, together 1."""
        return {name: float(share) for name, share in zip(SETS, self.process.shares(), strict=True)}

    def predict(self, pool: Pool) -> Prediction:
        mean, deviation = self.process.predict(_sets(pool, self.vocabulary, self.dictionary))
        margin = self.factor * deviation
        return Prediction(self.result(mean), self.result(mean - margin), self.result(mean + margin))

    def blend(self, pool: Pool) -> Floats:
        """The mean of the process's expectation and the dictionary on the scale of the labels, (n,)."""
        mean, _ = self.process.predict(_sets(pool, self.vocabulary, self.dictionary))
        placed = self.process.level + self.process.spread * _placed(self.dictionary, pool)
        return self.result((mean + placed) / 2.0)

    def result(self, value: Floats) -> Floats:
        """From the scale of the process to that of the results."""
        return self.sign * np.exp(np.minimum(self.sign * value, 700.0)) if self.logarithmic else value


def _placed(dictionary: Dictionary, pool: Pool) -> Floats:
    """The dictionary's score in deviations from its mean over the labels, (n,)."""
    return (dictionary.of(pool.entries) - dictionary.centre) / dictionary.spread


def _sets(pool: Pool, vocabulary: Vocabulary, dictionary: Dictionary) -> Sequence[Floats]:
    shapes = pool.shapes
    means, slopes = (columns(pool.choices, names) for names in (vocabulary.means, vocabulary.slopes))
    return (
        _placed(dictionary, pool)[:, None],
        shapes[:, :2],
        shapes,
        np.hstack([shapes, means]),
        np.hstack([shapes, slopes]),
    )
