"""Is there a better label-free score than geo? A search, judged on benchmarks that its choices did not see.

python benchmarks/label_free.py [FOLDER] prints label_free.md and writes it beside this file. FOLDER holds the
ground truth; else it is what `zerolm bench download` fetched.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from formulas import BOUNDED, GEO, GEO_DEPTH, KINDS, LAYER, MEANS, TOTAL, Formula, scores
from numpy.typing import NDArray
from run import machine
from timing import note, one_thread, table

from zerolm.architecture import Bools, Floats, Ints
from zerolm.groundtruth.reader import data_folder, locate, quality, read, views
from zerolm.groundtruth.sources import SOURCES
from zerolm.scores import Batch, make_score
from zerolm.statistics import Bootstrap, interval, kendall, random_regret, regret, tie_ranks, within_budget

DRAWS = 1000
GUARD = 0.004
LEFT_OUT = ("benchmark", "family")
REFERENCES = ("geo", "geo_saturating", "stable_rank", "body_params")
BASES, POWERS = (2.0, np.e, 3.0, 4.0, 6.0), (0.25, 0.5, 1.0)

Criterion = Callable[[Floats, Floats], Floats]
CRITERIA: dict[str, Criterion] = {
    "best mean": lambda change, weights: weights @ change,
    "guarded": lambda change, weights: np.where(
        change[weights > 0].min(axis=0) >= -GUARD, weights @ change, -np.inf
    ),
    "best worst row": lambda change, weights: change[weights > 0].min(axis=0),
}
"""From the change of tau against geo (r, m) and the rows' weights (r,), 0 for those left out, to (m,)."""
POOLS: dict[str, Callable[[Formula], bool]] = {
    "all": lambda formula: True,
    "degree one": lambda f: (
        f.kind in (LAYER, TOTAL) and f.term.removeprefix("totals ") in MEANS and f.factor in BOUNDED
    ),
    "fifteen": lambda f: (
        f.kind == LAYER
        and f.term in ("A^0.5 F^0.5", "A^0.55 F^0.45", "A^0.6 F^0.4")
        and (f.factor == "1" or f.factor.startswith("min(1, x)^"))
    ),
}


@dataclass(frozen=True, eq=False)
class Row:
    """A benchmark in one view: its networks, and their results (n,), higher is better."""

    title: str
    benchmark: str
    family: str
    batch: Batch
    bootstrap: Bootstrap

    @cached_property
    def cost(self) -> Floats:
        return make_score("body_params").of_many(self.batch)

    @cached_property
    def values(self) -> dict[Formula, Floats]:
        return dict(scores(self.batch))


@dataclass(frozen=True, eq=False)
class Judged:
    """A score in each of r rows: tau, its resamples (r, draws), regret over random regret, tau in budgets."""

    tau: Floats
    draws: Floats
    regret: Floats
    within: Floats

    @classmethod
    def of(cls, rows: Sequence[Row], values: Sequence[Floats]) -> Judged:
        found, rest = [], []
        for row, score in zip(rows, values, strict=True):
            result = row.bootstrap.result
            found.append(row.bootstrap.resample(score))
            share = regret(score, result, row.cost, 1) / random_regret(result, row.cost, 1)
            rest.append((found[-1].observed.tau, share, within_budget(score, result, row.cost)))
        tau, shares, within = np.array(rest).T
        return cls(tau, np.stack([each.tau for each in found]), shares, within)


def read_rows(folder: str | None) -> list[Row]:
    rows = []
    for seed, name in enumerate(SOURCES):
        truth = read(locate(name, folder))
        bootstrap = Bootstrap(quality(truth, truth.metric), DRAWS, seed)
        for view in views(truth):
            title = name + (f" {view.name}" if view.name else "")
            rows.append(Row(title, name, truth.space, Batch.of(view.architectures), bootstrap))
    return rows


class Search:
    """All formulas in all rows, and what is chosen where some rows are hidden."""

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
        self.judged = {
            name: Judged.of(rows, [make_score(name).of_many(row.batch) for row in rows])
            for name in REFERENCES
        }
        np.testing.assert_allclose(self.judged["geo"].tau, self.tau[:, self.formulas.index(GEO)], atol=1e-12)

    def weights(self, by: str, hidden: str | None = None) -> Floats:
        """Of each row (r,): groups count the same, and so do benchmarks in a group, and views in those."""
        seen = [row for row in self.rows if getattr(row, by) != hidden]
        shares = []
        for row in self.rows:
            group = {each.benchmark for each in seen if getattr(each, by) == getattr(row, by)}
            same = sum(each.benchmark == row.benchmark for each in seen)
            groups = len({getattr(each, by) for each in seen})
            shares.append(1.0 / (groups * len(group) * same) if row in seen else 0.0)
        return np.array(shares)

    def pool(self, holds: Callable[[Formula], bool]) -> Bools:
        return np.array([holds(formula) for formula in self.formulas])

    def best(self, pool: Bools, criterion: Criterion, weights: Floats) -> int:
        """The first of the best, sums being equal to twelve digits."""
        return int(np.argmax(np.where(pool, criterion(self.change, weights).round(12), -np.inf)))

    def nested(self, pool: Bools, criterion: Criterion, by: str) -> Ints:
        """For each row (r,), the formula chosen with the row's benchmark or family hidden."""
        groups = [getattr(row, by) for row in self.rows]
        chosen = {group: self.best(pool, criterion, self.weights(by, group)) for group in set(groups)}
        return np.array([chosen[group] for group in groups])

    def held_out(self, picks: Ints) -> float:
        return float(self.every @ self.change[np.arange(len(picks)), picks])

    def judge(self, picks: Sequence[int] | Ints) -> Judged:
        chosen = [row.values[self.formulas[pick]] for row, pick in zip(self.rows, picks, strict=True)]
        return Judged.of(self.rows, chosen)

    def gain(self, a: Judged, b: Judged) -> tuple[float, float, float]:
        """The mean change of tau over benchmarks, and its paired interval."""
        return float(self.every @ (a.tau - b.tau)), *interval(self.every @ (a.draws - b.draws))


def change(gain: tuple[float, float, float]) -> str:
    return f"{gain[0]:+.3f} [{gain[1]:+.3f}, {gain[2]:+.3f}]"


def tried(search: Search) -> None:
    """Kind by kind: the best with all labels seen, and what the same choice is worth on hidden rows."""
    print("## What was tried, and how it failed\n")
    print(
        f"{len(search.formulas):,} formulas, {search.distinct:,} of them distinct rankings. A and F are the "
        "weights of attention and FFN (of a layer, or in all: totals), w and d widths, L depth, x = L / "
        "log3 d, M(p) the power mean of A and F; k and m are the sides of a projection (S: summed, G: "
        "geometric mean of attention and FFN). `formulas.py` declares them. Mean change of tau against "
        "`geo`: of the best with all labels seen, and of what the same criterion chooses on the rest.\n"
    )
    header = ["formulas", "count", "best, labels seen", "seen"]
    header += [f"{name}, hidden {by}" for name in ("best mean", "guarded") for by in LEFT_OUT]
    cells: list[list[str]] = []
    groups = {"all": POOLS["all"]} | {kind: lambda f, kind=kind: f.kind == kind for kind in KINDS}
    for name, holds in {**groups, **POOLS}.items():
        pool = search.pool(lambda f, holds=holds: holds(f) or f == GEO)
        first = search.best(pool, CRITERIA["best mean"], search.every)
        seen = search.every @ search.change[:, first]
        held = [
            search.held_out(search.nested(pool, CRITERIA[criterion], by))
            for criterion in ("best mean", "guarded")
            for by in LEFT_OUT
        ]
        count = f"{search.pool(holds).sum():,}"
        cells.append([name, count, f"`{search.formulas[first]}`", *(f"{v:+.4f}" for v in [seen, *held])])
    table(header, cells)


def failures(search: Search, held: dict[tuple[str, str, str], NDArray[np.int64]]) -> None:
    worst = search.change.min(axis=0)
    print(f"- Of all formulas {np.sum(worst >= 0) - 1} beside `geo` fall below it in no row, "
          f"{np.sum(worst >= -GUARD) - 1} by at most {GUARD} in any.")  # fmt: skip
    for by in LEFT_OUT:
        picks = held["all", "best mean", by]
        losses = search.change[np.arange(len(picks)), picks]
        row = int(losses.argmin())
        print(f"- With its {by} hidden, {search.rows[row].title} is ranked by "
              f"`{search.formulas[picks[row]]}`: {losses[row]:+.3f}.")  # fmt: skip
    for name in REFERENCES[1:3]:
        moved = search.judged[name].tau - search.judged["geo"].tau
        each = ", ".join(f"{row.title} {v:+.3f}" for row, v in zip(search.rows, moved, strict=True))
        print(f"- `{name}` trades one family for another: {each}.")
    print()


def contenders(search: Search, judged: dict[tuple[str, str], Judged]) -> None:
    print("## Held out\n")
    print(
        f"Means over the seven benchmarks, the three views of FlexiBERT counting as one. Changes with 95 % "
        f"intervals from {DRAWS} paired resamples of the architectures; they do not cover the choice of the "
        "benchmarks, of which there are few. `regret` is the quality lost to the best within 19 parameter "
        "budgets, as a share of what a random choice loses; `in budgets` is tau within deciles of body "
        "parameters. `labels seen` means that the score was not chosen without these labels.\n"
    )
    header = ["score", "hidden", "tau", *(f"against `{name}`" for name in REFERENCES)]
    header += ["rows above / below `geo`", "worst row", "regret", "in budgets"]
    geo = search.judged["geo"]
    cells = []
    for (name, hidden), one in judged.items():
        moved = one.tau - geo.tau
        against = [change(search.gain(one, search.judged[other])) for other in REFERENCES]
        against = [text if one is not search.judged[n] else "" for text, n in zip(against, REFERENCES, strict=True)]
        cells.append([
            name, hidden, f"{search.every @ one.tau:.3f}", *against, f"{np.sum(moved > 1e-9)} / {np.sum(moved < -1e-9)}",
            f"{moved.min():+.3f}", f"{search.every @ one.regret:.3f}", f"{search.every @ one.within:.3f}",
        ])  # fmt: skip
    table(header, cells)
