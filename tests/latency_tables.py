"""Made-up latencies of an elastic space, and all its architectures one by one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from zerolm.architecture import Architecture, Ints
from zerolm.costs import Latencies, TimedCosts
from zerolm.lab.spaces.elastic import Elastic
from zerolm.solvers.problem import Budgets
from zerolm.spaces import make_space

SIZES: dict[str, Any] = {
    "depth": 3, "hidden": 16, "heads": 2, "embedding": 6, "vocab": 40, "positions": 20, "step": 4
}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Timed:
    """A space of unevenly grown widths, its costs with latencies, and all of its architectures."""

    space: Elastic
    costs: TimedCosts
    architectures: list[Architecture]
    listed: Ints

    @classmethod
    @lru_cache(maxsize=32)
    def drawn(cls, seed: int, largest: int, depth: int = 3) -> Timed:
        """Return latencies of 1 to ``largest``: of a small one many paths tie, of a large one none do."""
        draw = np.random.default_rng(seed)
        kinds = make_space("elastic", **SIZES).kinds  # type: ignore[attr-defined]
        widths = (4 * draw.integers(1, 7, depth * len(kinds))).tolist()
        space = make_space("elastic", **{**SIZES, "depth": depth, "widths": widths})
        assert isinstance(space, Elastic)
        places = [block.candidates for backbone in space.backbones() for block in backbone.blocks]
        layers = sorted({layer for candidates in places for layer in candidates.layers})
        table = dict(zip(layers, draw.integers(1, largest + 1, len(layers)).tolist(), strict=True))
        costs = TimedCosts(latencies=Latencies(table, int(draw.integers(1, largest + 1))))
        ways = [[way for ways in candidates.alternatives for way in ways] for candidates in places]
        every = [space.read({"layers": list(path)}) for path in product(*ways)]
        listed = np.array([list(costs.of(one).values()) for one in every], np.int64)
        return cls(space, costs, every, listed)

    def limits(self, shares: dict[str, float]) -> dict[str, int]:
        """Return budgets at quantiles of the costs of all architectures."""
        limits = {
            name: int(np.quantile(self.listed[:, self.costs.names.index(name[4:])], share, method="nearest"))
            for name, share in shares.items()
        }
        return {name: min(limit, limits.get(f"max{name[3:]}", limit)) for name, limit in limits.items()}

    def within(self, limits: dict[str, int]) -> list[int]:
        """Return the numbers of the architectures that keep limits."""
        allowed = Budgets.of(limits, self.costs.names).allow(self.listed)
        return [int(i) for i in np.flatnonzero(allowed)]
