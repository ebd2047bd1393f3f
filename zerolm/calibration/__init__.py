"""Calibration: from a few trained architectures to a better ranking, and to predictions with intervals."""

from zerolm.calibration.calibrate import METHODS, Calibration, Judgement, Labels, calibrate, judge
from zerolm.calibration.expectation import expected_of, explained
from zerolm.calibration.pool import Pool
from zerolm.calibration.predictor import Prediction

__all__ = [
    "METHODS",
    "Calibration",
    "Judgement",
    "Labels",
    "Pool",
    "Prediction",
    "calibrate",
    "expected_of",
    "explained",
    "judge",
]
