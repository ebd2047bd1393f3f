"""Predicted results with intervals, from few labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Floats
from zerolm.calibration.pool import Pool
from zerolm.calibration.rivals import RIVALS, SETS, Rivals
from zerolm.io.brief import brief

LEVEL: Final = 0.9


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected results (n,), "higher is better", and the interval that holds 90 % of them."""

    mean: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False, repr=False)
class Predictor:
    """The weighted mean of rivals, with intervals of honest width.

    ``weights`` are those of the rivals, together 1. An interval is the deviation of the Gaussian process,
    times the ``factor`` that the errors at each label ask for when that label is left out (jackknife, Barber
    et al., Predictive inference with the jackknife+, 2021).
    """

    rivals: Rivals
    weights: Floats
    factor: float

    def __repr__(self) -> str:
        weights = ", ".join(f"{name} {weight:.2f}" for name, weight in zip(RIVALS, self.weights, strict=True))
        return brief(self, weights, f"intervals x {self.factor:.3g}")

    @classmethod
    def of(cls, rivals: Rivals, weights: Floats) -> Predictor:
        predictions, deviation = rivals.left_out()
        errors = np.sort(np.abs(rivals.target - weights @ predictions) / deviation)
        # One rank more than the level asks for: the process has seen each label when it was weighed.
        rank = min(len(errors), math.ceil(LEVEL * (len(errors) + 1)) + 1)
        return cls(rivals, weights, float(errors[rank - 1]))

    def shares(self) -> dict[str, float]:
        """Return how far the process believes each set of features, together 1."""
        return {name: float(share) for name, share in zip(SETS, self.rivals.process.shares(), strict=True)}

    def mean(self, pool: Pool) -> Floats:
        """Return expected results, (n,)."""
        return self.rivals.scale.result(self.weights @ self.rivals.predict(pool)[0])

    def predict(self, pool: Pool) -> Prediction:
        predictions, deviation = self.rivals.predict(pool)
        mean, margin, result = self.weights @ predictions, self.factor * deviation, self.rivals.scale.result
        return Prediction(result(mean), result(mean - margin), result(mean + margin))
