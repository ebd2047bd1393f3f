"""Sizes of sub-networks, sampled uniformly from a space within budgets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.costs import COSTS
from zerolm.planning.part_costs import Choices, PartCosts
from zerolm.solvers.problem import Budgets
from zerolm.units.within_layers import UNITS, LayerSizes

LISTED: Final = 1 << 16
"""Spaces of at most this number of sub-networks are enumerated and shuffled."""
DRAWN_AT_ONCE: Final = 1 << 14
USELESS_ROUNDS: Final = 512
"""Largest number of consecutive rounds of sampling without a new sub-network."""

Sizes = tuple[LayerSizes, ...]
"""The number of units of each kind in each layer."""


def space_size(choices: Choices, depth: int) -> int:
    """Return the exact number of sub-networks in a space."""
    return math.prod(len(kind) for layer in range(depth) for kind in choices.of(layer))


def drawn_sizes(
    choices: Choices, costs: PartCosts, depth: int, count: int, seed: int, budgets: Mapping[str, int]
) -> list[Sizes]:
    """Return ``count`` different sub-networks of all layers, sampled uniformly from those within the budgets.

    ``budgets`` are ``max_`` and ``min_`` of costs. Raises ``ValueError`` where there are fewer, or those
    within budgets are too rare to be sampled; it names the nearest.
    """
    total = space_size(choices, depth)
    if count > total:
        raise ValueError(f"the space has {total:,} sub-networks of this parent, so {count:,} cannot be drawn")
    lists = [kind for layer in range(depth) for kind in choices.of(layer)]  # the kinds of units in turn
    tables = [
        np.array([parts[size] for size in sizes])
        for layer in range(depth)
        for parts, sizes in zip(costs.layers[layer].units, choices.of(layer), strict=True)
    ]
    limits = Budgets.of(dict(budgets))
    generator = np.random.default_rng(seed)
    chosen: dict[bytes, Ints] = {}
    least, most = np.full(len(COSTS), np.inf), np.zeros(len(COSTS))
    rounds = 0
    while len(chosen) < count and rounds < USELESS_ROUNDS:
        rounds += 1
        if total <= LISTED:
            places = generator.permutation(np.array(list(product(*map(range, map(len, lists))))))
            rounds = USELESS_ROUNDS
        else:
            sides = [generator.integers(len(sizes), size=DRAWN_AT_ONCE) for sizes in lists]
            places = np.stack(sides, axis=1)
        sums = costs.fixed + sum(table[places[:, i]] for i, table in enumerate(tables))
        least, most = np.minimum(least, sums.min(0)), np.maximum(most, sums.max(0))
        for row in places[limits.allow(sums)]:
            key = row.tobytes()
            if key not in chosen and len(chosen) < count:
                chosen[key] = row
                rounds = rounds if total <= LISTED else 0
    if len(chosen) < count:
        raise ValueError(_rare(budgets, {"max": least, "min": most}, len(chosen), count))
    counts = ([sizes[place] for sizes, place in zip(lists, row, strict=True)] for row in chosen.values())
    every = len(UNITS)
    return [tuple(tuple(each[i : i + every]) for i in range(0, len(each), every)) for each in counts]


def _rare(budgets: Mapping[str, int], nearest: Mapping[str, Floats], count: int, wanted: int) -> str:
    """Return why no more sub-networks are found, and a remedy; ``nearest`` are costs (c,) by side."""
    for name, limit in budgets.items():
        side, _, cost = name.partition("_")
        drawn = int(nearest[side][COSTS.index(cost)])
        if drawn > limit if side == "max" else drawn < limit:
            word, end = ("more than", "least") if side == "max" else ("fewer than", "most")
            return f"all sampled sub-networks have {word} {limit:,} {cost}, the {end} of them {drawn:,}"
    within = " within the budgets" if budgets else ""
    return f"only {count:,} sub-networks{within} differ, not {wanted:,}; ask for {count:,} at most"
