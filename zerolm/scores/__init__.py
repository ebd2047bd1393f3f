"""Scores: numbers where higher means expected to be better. One formula a function."""

from zerolm.scores import baselines, capacity, shape
from zerolm.scores.base import (
    SCORES,
    ChoiceTable,
    ClosedForm,
    Score,
    ScoreBatch,
    WholeScore,
    all_variants,
    closed_form,
    make_score,
    score_names,
    score_settings,
    variants,
    whole_score,
)

__all__ = [
    "SCORES",
    "ChoiceTable",
    "ClosedForm",
    "Score",
    "ScoreBatch",
    "WholeScore",
    "all_variants",
    "baselines",
    "capacity",
    "closed_form",
    "make_score",
    "score_names",
    "score_settings",
    "shape",
    "variants",
    "whole_score",
]
