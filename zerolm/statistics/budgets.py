"""Regret of trusting a score under parameter budgets, and overlap of the best."""

from __future__ import annotations

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.statistics.correlations import finite_pair, quantiles, tie_ranks


def budget_ladder(cost: Floats | Ints) -> Floats:
    """Return nineteen budgets (19,): the 10 %, 15 % ... 100 % quantiles of ``cost`` (n,), in its unit."""
    return quantiles(cost, range(2, 21), 20)


def regret_curve(score: Floats, result: Floats, cost: Floats | Ints, k: int) -> Floats:
    """Return the loss of the best of the ``k`` highest-scored in each budget of the ladder, (19,).

    In the unit of ``result`` (n,); the expectation over all ways to break the ties of ``score`` (n,).
    A budget of fewer than ``k`` architectures takes all of them.
    """
    finite_pair(score, result, cost)
    ranks, affordable = tie_ranks(score), [cost <= budget for budget in budget_ladder(cost)]
    return np.array([_expected_loss(ranks[chosen], result[chosen], k) for chosen in affordable])


def regret(score: Floats, result: Floats, cost: Floats | Ints, k: int) -> float:
    """Return the mean of ``regret_curve``."""
    return float(np.mean(regret_curve(score, result, cost, k)))


def random_regret(result: Floats, cost: Floats | Ints, k: int) -> float:
    """Return the regret of ``k`` architectures chosen at random: that of a score which ties all of them."""
    return regret(np.zeros(len(result)), result, cost, k)


def top_overlap(score: Floats, result: Floats, k: int) -> float:
    """Return the expected share of the ``k`` highest-scored that are among the ``k`` best, in [0, 1].

    Ties on either side are broken at random; ``k`` beyond n means all.
    """
    finite_pair(score, result)
    chosen, best = _chances(tie_ranks(score), k), _chances(tie_ranks(result, 0.0), k)
    return float(chosen @ best / chosen.sum())


def _cut(ranks: Ints, k: int) -> tuple[int, int]:
    """Return the rank at which the ``k`` >= 1 highest end, and how many of that rank are among them."""
    k = min(k, len(ranks))
    cut = int(np.partition(ranks, -k)[-k])
    return cut, k - int(np.count_nonzero(ranks > cut))


def _chances(ranks: Ints, k: int) -> Floats:
    """Return the chance (n,) of each to be among the ``k`` highest."""
    cut, places = _cut(ranks, k)
    tied = ranks == cut
    return np.where(tied, places / np.count_nonzero(tied), ranks > cut)


def _expected_loss(ranks: Ints, result: Floats, k: int) -> float:
    """Return the best result minus the expected best among the ``k`` highest ranks.

    Of m tied results the i-th best (from 0) is the best of a random draw of p with the chance
    C(m - 1 - i, p - 1) / C(m, p): p / m at first, then each time (m - p - i) / (m - 1 - i) of the last.
    """
    cut, places = _cut(ranks, k)
    tied = -np.sort(-result[ranks == cut])
    m = len(tied)
    worse = np.arange(m - places)
    chances = places / m * np.concatenate([[1.0], np.cumprod((m - places - worse) / (m - 1 - worse))])
    best = np.maximum(tied[: len(chances)], np.max(result[ranks > cut], initial=-np.inf))
    return float(chances @ (np.max(result) - best))
