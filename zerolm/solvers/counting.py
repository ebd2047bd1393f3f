"""How many architectures score at least a threshold within budgets, without visiting them.

Where every score and cost of a block is an affine function of one integer, the number of ways to reach
each sum is a coefficient of a power of a polynomial, computed exactly in big integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from zerolm.architecture import Ints
from zerolm.solvers.problem import Budgets, Problem, at_least
from zerolm.spaces import CandidateTable

MAX_TERMS = 1 << 16


def count_at_least(
    problems: Sequence[Problem], budgets: Budgets, columns: Sequence[int], threshold: float
) -> int | None:
    """Return the number of architectures with at least ``threshold`` within ``budgets`` on the cost
    ``columns``.

    None where a problem is not one block on a lattice.
    """
    total = 0
    for problem in problems:
        if len(problem.blocks) != 1:
            return None
        table, count = problem.blocks[0]
        lattice = lattice_of(table, columns)
        if lattice is None or (int(lattice.max()) * count) >= MAX_TERMS:
            return None
        low, high = int(np.argmin(lattice)), int(np.argmax(lattice))
        sums = np.arange(int(lattice.max()) * count + 1)
        span = max(int(lattice[high]), 1)
        slope = (table.score[high] - table.score[low]) / span
        score = problem.factor * (count * table.score[low] + slope * sums) + problem.offset
        good = at_least(score, threshold)
        for column in columns:
            step = int(table.costs[high, column] - table.costs[low, column]) // span
            cost = int(problem.costs[column]) + count * int(table.costs[low, column]) + step * sums
            good &= (cost >= budgets.low[column]) & (cost <= budgets.high[column])
        if good.any():
            ways = _power(tuple(lattice.tolist()), table.multiplicity, count)
            total += sum(ways[i] for i in np.flatnonzero(good))
    return total


def lattice_of(table: CandidateTable, columns: Sequence[int]) -> Ints | None:
    """Return integers (c,) from 0 of which the score and these costs are affine functions, or None."""
    costs = table.costs - table.costs.min(axis=0)
    varying = [column for column in columns if costs[:, column].any()]
    lead = varying[0] if varying else int(np.argmax(costs.max(axis=0)))
    step = int(np.gcd.reduce(costs[:, lead]))
    if not step:
        return np.zeros(len(table), np.int64) if np.ptp(table.score) == 0 else None
    lattice: Ints = costs[:, lead] // step
    span, high = int(lattice.max()), int(np.argmax(lattice))
    low = int(np.argmin(lattice))
    for column in varying:
        if (table.costs[:, column] - table.costs[low, column]).tolist() != (
            lattice * (int(table.costs[high, column] - table.costs[low, column]) // span)
        ).tolist():
            return None
    line = table.score[low] + (table.score[high] - table.score[low]) * (lattice / span)
    if np.abs(line - table.score).max() > 1e-12 * np.abs(table.score).max():
        return None
    return lattice


@lru_cache(maxsize=4096)
def _power(lattice: tuple[int, ...], multiplicity: tuple[int, ...], count: int) -> list[int]:
    """Return coefficients of (sum_j m_j x^lattice_j)^count, by one power of one big integer."""
    size = ((sum(multiplicity) ** count).bit_length() + 8) // 8
    packed = 0
    for place, ways in zip(lattice, multiplicity, strict=True):
        packed += ways << (8 * size * place)
    terms = max(lattice) * count + 1
    raw = pow(packed, count).to_bytes(size * terms + 1, "little")
    return [int.from_bytes(raw[size * i : size * (i + 1)], "little") for i in range(terms)]
