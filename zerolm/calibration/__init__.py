"""Calibration: from a few trained architectures to a better ranking, and to predictions with intervals."""

from zerolm.calibration.calibrate import METHODS, Calibration, Prediction, calibrate
from zerolm.calibration.expectation import expected_of, explained
from zerolm.calibration.pool import Labels, Pool
from zerolm.calibration.validation import Judgement, judge

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
