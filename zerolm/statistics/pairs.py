"""Pairs of about equal size: how many of them a score puts in the order of their results.

Rank correlations over architectures of all sizes mostly say that larger is better. These count the pairs
that size does not decide: within groups of equal size, or within some share of a cost.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.statistics.correlations import finite_pair, tie_ranks


@dataclass(frozen=True, slots=True)
class OrderedPairs:
    """Of ``n`` pairs with different results, how many a score orders rightly, and how many it ties."""

    right: int
    tied: int
    n: int

    @property
    def share(self) -> float:
        """Return the share ordered rightly, a tie counted half as by a coin; nan without pairs."""
        return (self.right + self.tied / 2) / self.n if self.n else float("nan")


def pairs_within_groups(groups: Sequence[Hashable]) -> Ints:
    """Return the pairs (m, 2) of places i < j of one group; those of group None stand in no pair."""
    numbers: dict[Hashable, int] = {}
    labels = np.array(
        [-1 if group is None else numbers.setdefault(group, len(numbers)) for group in groups], np.int64
    )
    pairs = np.stack(np.triu_indices(len(labels), 1), axis=1)
    first, second = labels[pairs].T
    return np.asarray(pairs[(first == second) & (first >= 0)])


def pairs_of_similar_cost(cost: Floats | Ints, share: float) -> Ints:
    """Return the pairs (m, 2) of places i < j whose costs (n,) differ by at most this share of the larger."""
    pairs = np.stack(np.triu_indices(len(cost), 1), axis=1)
    first, second = cost[pairs].T
    return np.asarray(pairs[np.abs(first - second) <= share * np.maximum(first, second)])


def ordered_pairs(score: Floats, result: Floats, pairs: Ints) -> OrderedPairs:
    """Return how ``score`` (n,) orders ``pairs`` (m, 2) by ``result`` (n,), both higher is better.

    Pairs of equal results have no order and do not count.
    """
    finite_pair(score, result)
    x, y = (
        np.sign(np.diff(ranks[pairs], axis=1)[:, 0]) for ranks in (tie_ranks(score), tie_ranks(result, 0.0))
    )
    judged = y != 0
    return OrderedPairs(
        right=int(np.count_nonzero(judged & (x == y))),
        tied=int(np.count_nonzero(judged & (x == 0))),
        n=int(np.count_nonzero(judged)),
    )
