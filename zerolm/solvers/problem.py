"""A search as numbers: backbones with candidate tables, budgets, and solutions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from zerolm.architecture import Bools, Floats, Ints
from zerolm.costs import COSTS, CostModel
from zerolm.scores import ClosedForm
from zerolm.spaces import Backbone, Candidates, CandidateTable
from zerolm.statistics import TOLERANCE

UNBOUNDED = (1 << 62) - 1


@dataclass(frozen=True, eq=False)
class Problem:
    """One backbone as numbers: ``factor`` x (sum of chosen table scores) + ``offset`` is the score.

    ``blocks`` are (table, count) pairs: ``count`` candidates are chosen from the table, repetition
    allowed, order without meaning. ``costs`` (k,) int64 is what the backbone costs beside its layers.
    """

    blocks: tuple[tuple[CandidateTable, int], ...]
    costs: Ints
    factor: float = 1.0
    offset: float = 0.0

    def score(self, picks: Sequence[Sequence[int]]) -> float:
        terms = [
            table.score[i] for (table, _), chosen in zip(self.blocks, picks, strict=True) for i in chosen
        ]
        return self.factor * math.fsum(terms) + self.offset

    def cost(self, picks: Sequence[Sequence[int]]) -> Ints:
        total = self.costs.copy()
        for (table, _), chosen in zip(self.blocks, picks, strict=True):
            total += table.costs[list(chosen)].sum(axis=0)
        return total

    def ways(self, picks: Sequence[Sequence[int]]) -> int:
        """Return how many architectures these picks stand for: orders of layers times choices of a shape."""
        product = 1
        for (table, _), chosen in zip(self.blocks, picks, strict=True):
            counts = Counter(chosen)
            product *= math.factorial(len(chosen))
            for i, count in counts.items():
                product = product // math.factorial(count) * table.multiplicity[i] ** count
        return product

    def extreme_costs(self) -> tuple[Ints, Ints]:
        """Return the least and the largest value of each cost alone, (k,) each."""
        low, high = self.costs.copy(), self.costs.copy()
        for table, count in self.blocks:
            low += count * table.costs.min(axis=0)
            high += count * table.costs.max(axis=0)
        return low, high


@dataclass(frozen=True, eq=False)
class Budgets:
    """Inclusive limits of the costs ``names``, in the order of the cost columns, (k,) int64 each."""

    low: Ints = field(default_factory=lambda: np.zeros(len(COSTS), np.int64))
    high: Ints = field(default_factory=lambda: np.full(len(COSTS), UNBOUNDED, np.int64))
    names: tuple[str, ...] = COSTS

    @classmethod
    def of(cls, limits: dict[str, int], names: tuple[str, ...] = COSTS) -> Budgets:
        """Return them by names such as ``max_params`` and ``min_macs``; ``ValueError`` if they contradict."""
        budgets = cls(np.zeros(len(names), np.int64), np.full(len(names), UNBOUNDED, np.int64), names)
        for name, value in limits.items():
            side, _, cost = name.partition("_")
            if side not in ("min", "max") or cost not in names:
                raise ValueError(
                    f"budget {name!r} is not known; there are min_ and max_ of {', '.join(names)}"
                )
            if value < 0:
                raise ValueError(f"budget {name} must not be negative, but is {value}")
            column = budgets.high if side == "max" else budgets.low
            column[names.index(cost)] = min(value, UNBOUNDED)
        for i, cost in enumerate(names):
            if budgets.low[i] > budgets.high[i]:
                raise ValueError(
                    f"min_{cost} {budgets.low[i]} is above max_{cost} {budgets.high[i]}; "
                    f"no value lies between them"
                )
        return budgets

    def allow(self, costs: Ints) -> Bools:
        """Return which rows (n, k) of costs keep within the limits, (n,)."""
        return np.asarray(((costs >= self.low) & (costs <= self.high)).all(axis=-1), np.bool_)

    def active(self, problems: Iterable[Problem]) -> list[tuple[str, int]]:
        """Return the limits that some architecture breaks, as (side, cost column); others change nothing."""
        lows, highs = zip(*(problem.extreme_costs() for problem in problems), strict=True)
        low, high = np.min(lows, axis=0), np.max(highs, axis=0)
        return [("max", int(i)) for i in np.flatnonzero(self.high < high)] + [
            ("min", int(i)) for i in np.flatnonzero(self.low > low)
        ]

    def replaced(self, side: str, column: int, value: int) -> Budgets:
        low, high = self.low.copy(), self.high.copy()
        (high if side == "max" else low)[column] = value
        return Budgets(low, high, self.names)


@dataclass(frozen=True, eq=False)
class Solution:
    """Candidate indices per block (sorted) in the problem of index ``problem``."""

    problem: int
    picks: tuple[tuple[int, ...], ...]
    score: float
    costs: Ints


def compile_problems(backbones: Sequence[Backbone], score: ClosedForm, costs: CostModel) -> list[Problem]:
    """Return the problems of backbones. Those with the same candidates share their tables."""
    cost_columns: dict[int, Ints] = {}
    score_columns: dict[tuple[int, int], Floats] = {}
    tables: dict[tuple[int, int, int], CandidateTable] = {}
    problems = []
    for backbone in backbones:
        depth, blocks = backbone.depth, []
        for block in backbone.blocks:
            candidates = block.candidates
            seen_depth = depth if score.sees_depth else 0
            repeat = block.count if block.tied else 1
            key = (id(candidates), seen_depth, repeat)
            if key not in tables:
                if id(candidates) not in cost_columns:
                    cost_columns[id(candidates)] = costs.rows(candidates.layers, candidates.shapes)
                if key[:2] not in score_columns:
                    score_columns[key[:2]] = _score_column(candidates, score, depth)
                tables[key] = CandidateTable(
                    score_columns[key[:2]] * repeat,
                    cost_columns[id(candidates)] * repeat,
                    candidates.multiplicity,
                )
            blocks.append((tables[key], 1 if block.tied else block.count))
        for table, count in blocks:
            if float(np.abs(table.costs).max(initial=0)) * count >= UNBOUNDED:
                raise ValueError("costs beyond 2^62 cannot be compared exactly; reduce context or batch")
        factor = score.factor(np.array([depth]), np.array([float(backbone.width)]))
        problems.append(
            Problem(
                tuple(blocks),
                costs.ends(backbone.ends),
                float(factor[0]),
                float(score.ends(backbone.ends)) if score.ends else 0.0,
            )
        )
    return problems


def _score_column(candidates: Candidates, score: ClosedForm, depth: int) -> Floats:
    column = np.asarray(score.layer(candidates.shapes, np.array(depth)), np.float64)
    if column.shape != (len(candidates.layers),) or not np.isfinite(column).all():
        raise ValueError(f"score {score.name!r} did not give one finite number a layer")
    return column


def at_least(score: float | Floats, threshold: float) -> Bools:
    """Return whether score >= threshold, up to the tolerance of ties."""
    return np.asarray(np.asarray(score) >= threshold - TOLERANCE * abs(threshold), np.bool_)


def near(best: float) -> float:
    """Return the least score within 1 % of the best."""
    return best - 0.01 * abs(best)
