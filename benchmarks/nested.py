"""Choosing a formula on some benchmarks and judging it on others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from formulas import GEO, Formula, scores
from published.sources import SOURCES
from timing import note

from zerolm.architecture import Bools, Floats, Ints
from zerolm.groundtruth.reader import locate, quality, read, views
from zerolm.scores import ScoreBatch, make_score
from zerolm.statistics import Bootstrap, interval, kendall, random_regret, regret, tie_ranks, within_budget

DRAWS = 1000
GUARD = 0.004
ROUNDING = 1e-9
LEVELS = ("benchmark", "family")
"""What is hidden from a choice: a benchmark in all its views, or all benchmarks of a space."""

Criterion = Callable[[Floats, Floats], Floats]
CRITERIA: dict[str, Criterion] = {
    "best mean": lambda change, weights: weights @ change,
    "guarded": lambda change, weights: np.where(
        change[weights > 0].min(axis=0) >= -GUARD, weights @ change, -np.inf
    ),
    "best worst row": lambda change, weights: change[weights > 0].min(axis=0),
}
"""From the changes of tau against geo (r, m) and the rows' weights (r,), 0 where hidden, to (m,)."""
Procedure = tuple[Bools, Criterion]
"""The formulas to choose from, (m,), and how."""


@dataclass(frozen=True, eq=False)
class Row:
    """A benchmark in one view: its networks, and their results (n,), higher is better."""

    title: str
    benchmark: str
    family: str
    batch: ScoreBatch
    bootstrap: Bootstrap

    @cached_property
    def cost(self) -> Floats:
        return make_score("body_params").of_many(self.batch)

    @cached_property
    def values(self) -> dict[Formula, Floats]:
        return dict(scores(self.batch))


def read_rows(folder: str | None) -> list[Row]:
    """Views share the resamples of their benchmark; benchmarks have their own."""
    rows = []
    for seed, name in enumerate(SOURCES):
        truth = read(locate(name, folder))
        bootstrap = Bootstrap(quality(truth, truth.metric), DRAWS, seed)
        for view in views(truth):
            title = name + (f" {view.name}" if view.name else "")
            rows.append(Row(title, name, truth.space, ScoreBatch.of(view.architectures), bootstrap))
    return rows


@dataclass(frozen=True, eq=False)
class Judged:
    """In each of r rows: tau, its resamples (r, draws), regret over random regret, tau within budgets."""

    tau: Floats
    draws: Floats
    regret: Floats
    within: Floats


def judge(rows: Sequence[Row], values: Sequence[Floats]) -> Judged:
    """One vector of scores (n,) a row."""
    tau, draws, shares, within = [], [], [], []
    for row, score in zip(rows, values, strict=True):
        result = row.bootstrap.result
        resampled = row.bootstrap.resample(score)
        tau.append(resampled.observed.tau)
        draws.append(resampled.tau)
        shares.append(regret(score, result, row.cost, 1) / random_regret(result, row.cost, 1))
        within.append(within_budget(score, result, row.cost))
    return Judged(np.array(tau), np.stack(draws), np.array(shares), np.array(within))


class Search:
    """The tau of every formula in every row, and what is chosen where some rows are hidden."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.formulas = list(rows[0].values)
        taus, keys = [], [b""] * len(self.formulas)
        for row in rows:
            note(f"{row.title}: {len(self.formulas):,} formulas")
            values = np.stack([row.values[formula] for formula in self.formulas])
            taus.append(kendall(values, row.bootstrap.result))
            ranks = tie_ranks(values).astype(np.int16)
            keys = [key + each.tobytes() for key, each in zip(keys, ranks, strict=True)]
        self.distinct = len(set(keys))
        self.tau: Floats = np.stack(taus)
        self.change: Floats = self.tau - self.tau[:, [self.formulas.index(GEO)]]
        self.every = self.weights("benchmark")

    def pool(self, holds: Callable[[Formula], bool]) -> Bools:
        return np.array([holds(formula) for formula in self.formulas])

    def groups(self, level: str) -> list[str]:
        return list(dict.fromkeys(getattr(row, level) for row in self.rows))

    def weights(self, level: str, hidden: frozenset[str] = frozenset()) -> Floats:
        """Of each row (r,): groups count the same, so do benchmarks in a group, and views in a benchmark."""
        shares = np.zeros(len(self.rows))
        seen = [group for group in self.groups(level) if group not in hidden]
        for i, row in enumerate(self.rows):
            if getattr(row, level) in seen:
                group = [each.benchmark for each in self.rows if getattr(each, level) == getattr(row, level)]
                shares[i] = 1.0 / (len(seen) * len(set(group)) * group.count(row.benchmark))
        return shares

    def best(self, procedure: Procedure, weights: Floats) -> int:
        """The first of the best, equal to twelve digits."""
        pool, criterion = procedure
        return int(np.argmax(np.where(pool, criterion(self.change, weights).round(12), -np.inf)))

    def nested(self, procedure: Procedure, level: str, hidden: frozenset[str] = frozenset()) -> Ints:
        """For each row (r,), the formula chosen with the row's group hidden, and ``hidden`` ones too."""
        chosen = {
            group: self.best(procedure, self.weights(level, hidden | {group})) for group in self.groups(level)
        }
        return np.array([chosen[getattr(row, level)] for row in self.rows])

    def twice_nested(self, procedures: Sequence[Procedure], level: str) -> Ints:
        """For each row (r,), the formula of the procedure that, nested, does best with its group hidden."""
        chosen = {}
        for group in self.groups(level):
            hidden = frozenset({group})
            weights = self.weights(level, hidden)
            worth = [weights @ self.held_out(self.nested(each, level, hidden)) for each in procedures]
            chosen[group] = self.best(procedures[int(np.argmax(np.round(worth, 12)))], weights)
        return np.array([chosen[getattr(row, level)] for row in self.rows])

    def held_out(self, picks: Ints) -> Floats:
        """The change of tau against geo (r,) of a formula for each row."""
        return self.change[np.arange(len(picks)), picks]

    def judge(self, picks: Sequence[int] | Ints) -> Judged:
        chosen = [row.values[self.formulas[pick]] for row, pick in zip(self.rows, picks, strict=True)]
        return judge(self.rows, chosen)

    def gain(self, a: Judged, b: Judged) -> tuple[float, float, float]:
        """The mean change of tau over benchmarks, and its paired interval."""
        return float(self.every @ (a.tau - b.tau)), *interval(self.every @ (a.draws - b.draws))
