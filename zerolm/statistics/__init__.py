"""How well a score agrees with trained results: rank correlations, intervals, regret, noise ceilings.

Scores, results and costs are vectors with one entry an architecture; higher scores and results are better.
"""

from zerolm.statistics.bootstrap import Bootstrap, Interval, Resampled, enough, gain, interval
from zerolm.statistics.budgets import budget_ladder, random_regret, regret, regret_curve, top_overlap
from zerolm.statistics.correlations import (
    TOLERANCE,
    Agreement,
    agreement,
    defined,
    kendall,
    spearman,
    tie_ranks,
    within_budget,
)
from zerolm.statistics.noise import Ceiling, noise_ceiling
from zerolm.statistics.pairs import (
    OrderedPairs,
    ordered_pairs,
    pairs_of_similar_cost,
    pairs_within_groups,
)

__all__ = [
    "TOLERANCE",
    "Agreement",
    "Bootstrap",
    "Ceiling",
    "Interval",
    "OrderedPairs",
    "Resampled",
    "agreement",
    "budget_ladder",
    "defined",
    "enough",
    "gain",
    "interval",
    "kendall",
    "noise_ceiling",
    "ordered_pairs",
    "pairs_of_similar_cost",
    "pairs_within_groups",
    "random_regret",
    "regret",
    "regret_curve",
    "spearman",
    "tie_ranks",
    "top_overlap",
    "within_budget",
]
