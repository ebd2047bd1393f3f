"""Sizes of sub-networks, sampled uniformly from a space within budgets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final

import numpy as np

from zerolm.architecture import Ints
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


def drawn_sizes(
    choices: Choices, costs: PartCosts, depth: int, count: int, seed: int, budgets: Mapping[str, int]
) -> list[Sizes]:
    """Return ``count`` different sub-networks of all layers, sampled uniformly from those within the budgets.

    ``budgets`` are ``max_`` and ``min_`` of costs. Raises ``ValueError`` where there are fewer, or those
    within budgets are too rare to be sampled.
    """
    lists = [kind for layer in range(depth) for kind in choices.of(layer)]  # the kinds of units in turn
    tables = [
        np.array([parts[size] for size in sizes])
        for layer in range(depth)
        for parts, sizes in zip(costs.layers[layer].units, choices.of(layer), strict=True)
    ]
    limits, chosen, useless = Budgets.of(dict(budgets)), dict[bytes, Ints](), 0
    for places in _samples(lists, np.random.default_rng(seed)):
        before = len(chosen)
        sums = costs.fixed + sum(table[places[:, i]] for i, table in enumerate(tables))
        for row in places[limits.allow(sums)]:
            if len(chosen) < count:
                chosen.setdefault(row.tobytes(), row)
        useless = 0 if len(chosen) > before else useless + 1
        if len(chosen) == count or useless == USELESS_ROUNDS:
            break
    if len(chosen) < count:
        within = " within the budgets" if budgets else ""
        drawn = f"{len(chosen):,} of {count:,} different sub-networks{within} were sampled"
        if not chosen:
            ends = [costs.fixed + sum(end(table, axis=0) for table in tables) for end in (np.min, np.max)]
            ranges = dict(zip(limits.names, zip(*ends, strict=True), strict=True))
            words = [
                f"{cost} of all are {ranges[cost][0]:,} to {ranges[cost][1]:,}"
                for cost in dict.fromkeys(name.partition("_")[2] for name in budgets)
            ]
            raise ValueError(f"no sub-network within the budgets was sampled; {', '.join(words)}")
        raise ValueError(f"only {drawn}; ask for {len(chosen):,} at most")
    counts = ([sizes[place] for sizes, place in zip(lists, row, strict=True)] for row in chosen.values())
    every = len(UNITS)
    return [tuple(tuple(each[i : i + every]) for i in range(0, len(each), every)) for each in counts]


def _samples(lists: Sequence[Sequence[int]], generator: np.random.Generator) -> Iterator[Ints]:
    """Yield places in the lists (n, lists): all in random order of a small space, else ever more."""
    lengths = list(map(len, lists))
    if math.prod(lengths) <= LISTED:
        yield generator.permutation(np.array(list(product(*map(range, lengths)))))
        return
    while True:
        yield np.stack([generator.integers(length, size=DRAWN_AT_ONCE) for length in lengths], axis=1)
