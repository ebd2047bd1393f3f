"""From a few trained architectures to a better ranking."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Architecture, Floats
from zerolm.calibration.alpha import Alpha, algorithm1
from zerolm.calibration.dictionary import Dictionary, fit_dictionary
from zerolm.calibration.pool import Labels, Pool
from zerolm.calibration.rivals import RIVALS, SETS, Rivals, stacked_weights
from zerolm.io.brief import Brief, brief
from zerolm.scores import ClosedForm, Score, WholeScore, make_score
from zerolm.settings import check_known

LABELS_NEEDED: Final = {"stack": 5, "dictionary": 5, "gp": 8, "blend": 8, "algorithm1": 3}
"""Labels that each method needs."""
METHODS: Final = tuple(LABELS_NEEDED)
EXPECTING: Final = 8
"""Labels from which results are expected, with intervals."""
MOST_LABELS: Final = 1000
LARGEST_RESULT: Final = 1e100
"""Results whose squares are sure to be numbers."""
FIXED: Final = {"dictionary": (0.0, 0.0, 1.0, 0.0), "gp": (0.0, 0.0, 0.0, 1.0), "blend": (0.0, 0.0, 0.5, 0.5)}
"""Weights of ``RIVALS`` in the methods that ask no hidden labels."""
GUIDES: Final = ("geo", "geo_saturating", "stable_rank", "spectral_capacity", "body_params", "depth_width")
"""Closed forms whose best architectures are re-ranked by a calibration that is not additive."""
LEVEL: Final = 0.9


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """A ranking fitted to labels. ``seed`` selects the labels that are hidden to compare rivals."""

    labels: Labels
    method: str
    alpha: Alpha | None
    dictionary: Dictionary | None
    predictor: Predictor | None
    seed: int = 0

    def __repr__(self) -> str:
        return brief(self, self.method, repr(self.labels))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return warnings about the labels, and about the alpha if one was chosen."""
        return *self.labels.warnings, *(self.alpha.warnings if self.alpha else ())

    @property
    def weights(self) -> dict[str, float]:
        """Return the weight of each rival prediction in the ranking; none where it follows an alpha."""
        if self.alpha or not self.predictor:
            return {}
        return dict(zip(RIVALS, map(float, self.predictor.weights), strict=True))

    def rank(self, pool: Pool) -> Floats:
        """Return scores of architectures, (n,): those of ``score``.

        Of ``stack``, ``gp`` and ``blend`` they are expected results on the scale of the labels: 0 is the
        worst label and 1 the best, so that one percent means the same whatever the unit of the metric.
        """
        if self.alpha:
            return make_score("zerolm", alpha=self.alpha.alpha).of_many(pool.batch)
        if self.method == "dictionary":
            assert self.dictionary
            return self.dictionary.of(pool.entries)
        assert self.predictor
        result = self.labels.result
        return np.asarray((self.predictor.mean(pool) - result.min()) / (result.max() - result.min()))

    def predict(self, pool: Pool) -> Prediction | None:
        """Return expected results with 90 % intervals; None with fewer than ``EXPECTING`` labels.

        What is expected never falls where the score of ``rank`` rises.
        """
        enough = self.predictor and len(self.labels) >= EXPECTING
        return self.predictor.predict(pool) if self.predictor and enough else None

    def score(self) -> Score:
        """Return the ranking as a score for ``search``: a closed form where it is a sum over layers."""
        if self.alpha:
            return make_score("zerolm", alpha=self.alpha.alpha)
        assert self.dictionary
        if self.method == "dictionary":
            return self.dictionary.score()

        def many(architectures: Sequence[Architecture]) -> Floats:
            return self.rank(Pool.of(architectures))

        closed = [self.dictionary.score(), *(make_score(name) for name in GUIDES)]
        guides = tuple(score for score in closed if isinstance(score, ClosedForm))
        return WholeScore(
            self.method, lambda a: float(many([a])[0]), "fitted to labels", many=many, guides=guides
        )


def calibrate(labels: Labels, method: str = "stack", *, seed: int = 0) -> Calibration:
    """Fit ``method`` to labels.

    ``algorithm1`` chooses an alpha as ZeroLM does, ``dictionary`` adds up the closed forms that agree best,
    ``gp`` is a Gaussian process, ``blend`` the mean of both; ``stack`` is a weighted sum of both and the
    uncalibrated ``geo`` and ``body_params``, with weights by their predictions of hidden labels. Raises
    ``ValueError`` for an unknown method, too few labels, or labels that do not differ.
    """
    check_known("method", method, METHODS)
    if len(labels) < LABELS_NEEDED[method]:
        fits = [name for name in METHODS if LABELS_NEEDED[name] <= len(labels)]
        enough = f"enough for {', '.join(fits)}" if fits else "no method needs so few"
        raise ValueError(
            f"method {method} needs at least {LABELS_NEEDED[method]} labelled architectures, but there are "
            f"{len(labels)}; {enough}"
        )
    if len(labels) > MOST_LABELS:
        count = len(labels)
        raise ValueError(f"there are {count} labelled architectures; at most {MOST_LABELS} can be fitted")
    if not labels.varied:
        raise ValueError(f"all {len(labels)} labels have the same {labels.metric}: they rank nothing")
    largest = float(np.abs(labels.result).max())
    if largest > LARGEST_RESULT:
        unit = f"choose a unit with at most {LARGEST_RESULT:g}"
        raise ValueError(f"{labels.metric} reaches {largest:g}: {unit}")
    return fitted(labels, method, seed)


def fitted(labels: Labels, method: str, seed: int) -> Calibration:
    """Return the calibration of ``calibrate``, for labels that were checked."""
    pool, result = labels.pool, labels.result
    alpha = algorithm1(pool.batch, result) if method == "algorithm1" else None
    if alpha and len(labels) < EXPECTING:
        return Calibration(labels, method, alpha, None, None, seed)
    dictionary = fit_dictionary(pool.entries, result)
    rivals = Rivals.fit(pool, result, dictionary, alpha=alpha.alpha if alpha else None)
    if alpha:
        weights = np.array([0.0, 0.0, 0.0, 1.0, 0.0])
    elif method in FIXED:
        weights = np.array(FIXED[method])
    else:
        weights = stacked_weights(labels, rivals.scale, seed)
    predictor = Predictor.of(rivals, weights)
    return Calibration(labels, method, alpha, None if alpha else dictionary, predictor, seed)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected results (n,), "higher is better", and the interval that holds 90 % of them."""

    mean: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False, repr=False)
class Predictor(Brief):
    """The weighted mean of rivals, with intervals of honest width.

    ``weights`` are those of the rivals, together 1. An interval is the deviation of the Gaussian process,
    times the ``factor`` that the errors at each label ask for when that label is left out (jackknife, Barber
    et al., Predictive inference with the jackknife+, 2021).
    """

    rivals: Rivals
    weights: Floats
    factor: float

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
