"""A search as numbers: backbones with candidate tables, budgets, and solutions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np

from zerolm.architecture import Bools, Ends, Floats, Ints
from zerolm.costs import COSTS, CostModel
from zerolm.scores import ClosedForm
from zerolm.spaces import Backbone, Candidates, CandidateTable, RepeatedTable
from zerolm.statistics import TOLERANCE

UNBOUNDED = (1 << 62) - 1
Picks = tuple[tuple[int, ...], ...]
"""Indices of candidates, sorted, in each block of a problem."""
CostColumns = dict[int, tuple[object, Ints]]
"""Candidates with their costs (c, k), and ends with theirs (k,), by id: what is stored keeps its id."""


@dataclass(frozen=True, eq=False)
class Problem:
    """One backbone as numbers: ``factor`` x (sum of chosen table scores) + ``offset`` is the score.

    ``blocks`` are (table, count) pairs: ``count`` candidates are chosen from the table, repetition allowed,
    order without meaning. ``costs`` (k,) int64 is the cost of the backbone outside its layers.
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

    def solution(self, index: int, picks: Picks) -> Solution:
        """Return picks as a solution of this problem, whose index is ``index``."""
        return Solution(index, picks, self.score(picks), self.cost(picks))

    @property
    def scored(self) -> bool:
        return self.offset != 0 or any(bool(table.score.any()) for table, _ in self.blocks)

    def ways(self, picks: Sequence[Sequence[int]]) -> int:
        """Return the number of architectures for these picks: orders of layers times choices of a shape."""
        product = 1
        for (table, _), chosen in zip(self.blocks, picks, strict=True):
            counts = Counter(chosen)
            product *= math.factorial(len(chosen))
            for i, count in counts.items():
                product = product // math.factorial(count) * table.multiplicity[i] ** count
        return product

    @cached_property
    def extreme_costs(self) -> tuple[Ints, Ints]:
        """Return the least and the largest value of each cost alone, (k,) each."""
        low, high = self.costs.copy(), self.costs.copy()
        for table, count in self.blocks:
            low += count * table.least
            high += count * table.most
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
        lows, highs = zip(*(problem.extreme_costs for problem in problems), strict=True)
        low, high = np.min(lows, axis=0), np.max(highs, axis=0)
        return [("max", int(i)) for i in np.flatnonzero(self.high < high)] + [
            ("min", int(i)) for i in np.flatnonzero(self.low > low)
        ]

    def limit(self, side: str, column: int) -> int:
        return int((self.high if side == "max" else self.low)[column])

    def replaced(self, side: str, column: int, value: int) -> Budgets:
        low, high = self.low.copy(), self.high.copy()
        (high if side == "max" else low)[column] = value
        return Budgets(low, high, self.names)


@dataclass(frozen=True, eq=False)
class Solution:
    """Picks in the problem of index ``problem``, with their score and costs (k,)."""

    problem: int
    picks: Picks
    score: float
    costs: Ints


def affordable(
    backbones: Iterable[Backbone], costs: CostModel, budgets: Budgets, columns: CostColumns
) -> list[Backbone]:
    """Return backbones without those of one block whose cheapest layers break an upper budget."""
    most_layers: dict[tuple[int, int], int] = {}
    able = []
    for backbone in backbones:
        block = backbone.blocks[0]
        key = (id(backbone.ends), id(block.candidates))
        if key not in most_layers:
            room = budgets.high - _of_ends(backbone.ends, costs, columns)
            fits = bool((room >= 0).all())
            least = _of_layers(block.candidates, costs, columns).min(axis=0) if fits else room
            most_layers[key] = int((room // np.maximum(least, 1)).min())
        if len(backbone.blocks) > 1 or block.count <= most_layers[key]:
            able.append(backbone)
    return able


def _of_layers(candidates: Candidates, costs: CostModel, columns: CostColumns) -> Ints:
    if id(candidates) not in columns:
        columns[id(candidates)] = candidates, costs.rows(lambda: candidates.layers, candidates.shapes)
    return columns[id(candidates)][1]


def _of_ends(ends: Ends, costs: CostModel, columns: CostColumns) -> Ints:
    if id(ends) not in columns:
        columns[id(ends)] = ends, costs.ends(ends)
    return columns[id(ends)][1]


def compile_problems(
    backbones: Sequence[Backbone], score: ClosedForm, costs: CostModel, columns: CostColumns | None = None
) -> list[Problem]:
    """Return the problems of backbones. Those with the same candidates share their tables.

    ``columns`` are kept there for the next score of the same backbones.
    """
    columns = {} if columns is None else columns
    tables: dict[tuple[int, int], CandidateTable] = {}
    repeated: dict[tuple[int, int, int], CandidateTable] = {}
    offsets: dict[int, float] = {}
    depths = np.array([backbone.depth for backbone in backbones], np.int64)
    widths = np.array([backbone.width for backbone in backbones], np.float64)
    outside = np.array([backbone.ends.outside for backbone in backbones], np.int64)
    factors = score.factors(depths, widths, outside)
    problems = []
    for backbone, depth, factor in zip(backbones, depths.tolist(), factors.tolist(), strict=True):
        blocks = []
        for block in backbone.blocks:
            candidates = block.candidates
            key = (id(candidates), depth if score.sees_depth else 0)
            if key not in tables:
                column = _score_column(candidates, score, depth)
                layer_costs = _of_layers(candidates, costs, columns)
                tables[key] = CandidateTable(column, layer_costs, candidates.multiplicity)
            table = tables[key]
            if table.peak * block.count >= UNBOUNDED:
                raise ValueError("costs beyond 2^62 cannot be compared exactly; reduce context or batch")
            if block.tied:
                table = repeated.setdefault((*key, block.count), RepeatedTable(table, block.count))
            blocks.append((table, 1 if block.tied else block.count))
        ends = backbone.ends
        if id(ends) not in offsets:
            offsets[id(ends)] = float(score.ends(ends)) if score.ends else 0.0
        of_ends = _of_ends(ends, costs, columns)
        problems.append(Problem(tuple(blocks), of_ends, factor, offsets[id(ends)]))
    return problems


def _score_column(candidates: Candidates, score: ClosedForm, depth: int) -> Floats:
    column = np.asarray(score.layer(candidates.shapes, np.array(depth)), np.float64)
    if column.shape != (len(candidates),) or not np.isfinite(column).all():
        raise ValueError(f"score {score.name!r} did not give one finite number a layer")
    return column


def at_least(score: float | Floats, threshold: float) -> Bools:
    """Return whether score >= threshold, up to the tolerance of ties."""
    return np.asarray(np.asarray(score) >= threshold - TOLERANCE * abs(threshold), np.bool_)


def near(best: float) -> float:
    """Return the least score within 1 % of the best."""
    return best - 0.01 * abs(best)


def single_limits(problems: Sequence[Problem], budgets: Budgets, column: int) -> list[int] | None:
    """Return the budgets as one upper limit on ``column`` for each problem, or None where they are more.

    Within a backbone several costs often are one: all grow in the same proportion from candidate to
    candidate. Then the tightest limit stands for all. A problem that cannot keep a limit gets -1.
    """
    limits = []
    for problem in problems:
        limit = _single_limit(problem, budgets, column)
        if limit is None:
            return None
        limits.append(limit)
    return limits


def _single_limit(problem: Problem, budgets: Budgets, column: int) -> int | None:
    least, most = problem.extreme_costs
    if np.any(least > budgets.high) or np.any(most < budgets.low):
        return -1
    if np.any(least < budgets.low):
        return None
    limit = int(budgets.high[column])
    for other in np.flatnonzero(most > budgets.high):
        if other == column:
            continue
        slope = proportion(problem, int(other), column)
        if slope is None:
            return None
        room = int(budgets.high[other] - least[other])
        limit = min(limit, int(least[column]) + room * slope.denominator // slope.numerator)
    return limit


def is_constant(problem: Problem, column: int) -> bool:
    """Return whether a cost is the same for all candidates of each block."""
    return not any(np.ptp(table.costs[:, column]) for table, _ in problem.blocks)


def proportion(problem: Problem, of: int, to: int) -> Fraction | None:
    """Return the one positive ratio in which two costs grow from candidate to candidate, if there is one."""
    grown = [table.costs - table.costs.min(axis=0) for table, _ in problem.blocks]
    x, y = (np.concatenate([g[:, c] for g in grown]) for c in (to, of))
    top = int(np.argmax(x))
    if not x[top] or not y[top]:
        return None
    slope = Fraction(int(y[top]), int(x[top]))
    proportional = np.array_equal(y.astype(object) * slope.denominator, x.astype(object) * slope.numerator)
    return slope if proportional else None


def bounded_columns(budgets: Budgets) -> list[int]:
    return np.flatnonzero(budgets.high < UNBOUNDED).tolist()
