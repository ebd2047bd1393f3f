"""The questions that a search asks of its method, and answers from a list of states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.costs import COSTS
from zerolm.solvers.exact import FRONT_POINTS, staircase, thinned
from zerolm.solvers.exhaustive import States, Ways
from zerolm.solvers.problem import Budgets, Solution, at_least
from zerolm.solvers.sampling import Sample
from zerolm.statistics import tie_ranks

KV_BYTES, MACS, PARAMS = COSTS.index("kv_bytes"), COSTS.index("macs"), COSTS.index("params")
PREFERENCE = (KV_BYTES, MACS, PARAMS)
"""What decides among equals, in this order."""


@dataclass(frozen=True, slots=True)
class Count:
    """A number of architectures, exact or a proven lower bound."""

    value: int
    exact: bool


class Engine(Protocol):
    """Answers within the budgets that it was made for."""

    @property
    def optimal(self) -> bool:
        """Return whether no architecture scores more than the first in order."""

    @property
    def complete(self) -> bool:
        """Return whether ``extreme`` and the lack of a solution speak of all architectures."""

    @property
    def ordered(self) -> bool:
        """Return whether of equals those come first that ``cheapest`` prefers."""

    @property
    def complete_front(self) -> bool:
        """Return whether the front, once it was asked for, was given whole."""

    def in_order(self) -> Iterator[tuple[Solution, float]]:
        """Return solutions best first, each with a proven upper bound on it and all that follow."""

    def front(self) -> list[Solution]:
        """Return the Pareto front of score against the engine's cost column, cheapest first."""

    def count(self, threshold: float) -> Count:
        """Return the number of architectures with a score of at least ``threshold``."""

    def cheapest(self, threshold: float) -> Solution:
        """Return, of those that score ``threshold`` or more (there are some), that with the least KV cache,
        then the fewest MACs, then the fewest parameters."""

    def peaks(self) -> dict[int, float]:
        """Return the best score of each problem that has one; an upper bound if the front is not complete."""

    def extreme(self, side: str, column: int, budgets: Budgets) -> int | None:
        """Return the least (side "max") or largest ("min") cost in ``column`` within ``budgets``."""


class StateList:
    """Answers from a list of states: of all of them, of those that can be best, or of a sample.

    ``optimal`` where the best of all is listed; ``complete`` where all are that may tie with it.
    """

    ordered = True

    def __init__(
        self, states: States | Sample, budgets: Budgets, column: int, optimal: bool, complete: bool = True
    ) -> None:
        self.states, self.column = states, column
        self.optimal, self.complete = optimal, optimal and complete
        self.complete_front = True
        self.allowed = np.flatnonzero(budgets.allow(states.costs))
        self.score: Floats = states.score[self.allowed]
        self.costs: Ints = states.costs[self.allowed]
        self.ways: Ways = states.ways[self.allowed]

    def in_order(self) -> Iterator[tuple[Solution, float]]:
        ranks = tie_ranks(self.score)
        order = np.lexsort((self.costs[:, PARAMS], self.costs[:, MACS], self.costs[:, KV_BYTES], -ranks))
        for i in order:
            yield self._solution(int(i)), float(self.score[i])

    def front(self) -> list[Solution]:
        points = staircase(self.costs[:, self.column], self.score)
        self.complete_front = len(points) <= FRONT_POINTS
        return [self._solution(int(i)) for i in thinned(points, FRONT_POINTS)]

    def count(self, threshold: float) -> Count:
        ways = self.ways[at_least(self.score, threshold)]
        if ways.dtype != object and float(ways.sum(dtype=np.float64)) > 2**62:
            ways = ways.astype(object)
        return Count(int(ways.sum()), self.complete)

    def cheapest(self, threshold: float) -> Solution:
        close = np.flatnonzero(at_least(self.score, threshold))
        keys = [self.costs[close, column] for column in reversed(PREFERENCE)]
        return self._solution(int(close[np.lexsort((-self.score[close], *keys))[0]]))

    def peaks(self) -> dict[int, float]:
        peaks: dict[int, float] = {}
        for index, score in zip(self.states.problem[self.allowed].tolist(), self.score.tolist(), strict=True):
            peaks[index] = max(score, peaks.get(index, score))
        return peaks

    def extreme(self, side: str, column: int, budgets: Budgets) -> int | None:
        values = self.states.costs[budgets.allow(self.states.costs), column]
        if not len(values):
            return None
        return int(values.min() if side == "max" else values.max())

    def _solution(self, i: int) -> Solution:
        return self.states.solution(int(self.allowed[i]))
