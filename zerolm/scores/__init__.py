"""Scores: numbers where higher means expected to be better. One formula a function."""

from zerolm.scores import baselines, capacity
from zerolm.scores.base import (
    Batch,
    ClosedForm,
    Score,
    WholeScore,
    closed_form,
    make_score,
    score_names,
    score_options,
    whole_score,
)

__all__ = [
    "Batch",
    "ClosedForm",
    "Score",
    "WholeScore",
    "baselines",
    "capacity",
    "closed_form",
    "make_score",
    "score_names",
    "score_options",
    "whole_score",
]
