"""The exact front of the LoNAS spaces against NSGA-II, and proven optima under three budgets."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from lonas import BODY, BYTES, MACS, Elastic, bert, llama
from numpy.typing import NDArray
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.problem import Problem as PymooProblem
from pymoo.operators.crossover.sbx import SBX
from pymoo.operators.mutation.pm import PM
from pymoo.operators.repair.rounding import RoundingRepair
from pymoo.operators.sampling.rnd import IntegerRandomSampling
from pymoo.optimize import minimize
from timing import note, number, one_thread, stopwatch, table

from zerolm.architecture import Floats, Ints
from zerolm.solvers import milp
from zerolm.solvers.exact import Exact, Front
from zerolm.solvers.problem import UNBOUNDED, Budgets, Problem

SEEDS = range(3)
POPULATION, GENERATIONS = 100, 500
TRIPLES = 10
REPEATS = 5


@dataclass(frozen=True, eq=False)
class Points:
    """Scores and MACs (p,), cheapest first."""

    macs: Ints
    score: Floats

    def normalised(self, problem: Problem) -> tuple[Floats, Floats]:
        """Cost and shortfall of score in units of the problem's own ranges, from 0 (best) to 1."""
        low, high = (costs[MACS] for costs in problem.extreme_costs)
        best = sum(float(block.score.max()) for block, _ in problem.blocks)
        worst = sum(float(block.score.min()) for block, _ in problem.blocks)
        return (self.macs - low) / (high - low), (best - self.score) / (best - worst)

    def hypervolume(self, problem: Problem) -> float:
        """The share of the unit square that the points dominate."""
        cost, shortfall = self.normalised(problem)
        return float(np.sum(np.diff(cost, append=1.0) * (1.0 - np.minimum.accumulate(shortfall))))

    def gap(self, other: Points, problem: Problem) -> float:
        """The median shortfall of these points against the best of ``other`` that costs no more."""
        at = np.searchsorted(other.macs, self.macs, side="right") - 1
        shortfall = self.normalised(problem)[1] - other.normalised(problem)[1][at]
        if shortfall.min() < -1e-9:
            raise AssertionError("a point lies above the exact front")
        return float(np.median(shortfall))


def solver(problem: Problem) -> Exact:
    return Exact([problem], MACS, [UNBOUNDED])


def exact(problem: Problem) -> Points:
    """The front by dynamic programming, from nothing."""
    fresh = solver(problem)
    front: Front = fresh.points(problem)
    return Points(front.cost + problem.costs[MACS], fresh.value(problem, front.score))


def evolved(space: Elastic, seed: int) -> Points:
    """The front that NSGA-II finds with the operators of NNCF's BootstrapNAS."""

    class Genomes(PymooProblem):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(n_var=len(space.upper), n_obj=2, xl=0, xu=space.upper, vtype=int)

        def _evaluate(self, x: NDArray[Any], out: dict[str, Any], *args: Any, **kwargs: Any) -> None:
            score, macs = space.evaluate(x)
            out["F"] = np.stack([macs, -score], axis=1)

    repair = RoundingRepair()
    algorithm = NSGA2(
        pop_size=POPULATION,
        sampling=IntegerRandomSampling(),
        crossover=SBX(prob=0.9, eta=10, vtype=float, repair=repair),
        mutation=PM(prob=1.0, prob_var=1 / len(space.upper), eta=3, vtype=float, repair=repair),
        eliminate_duplicates=True,
    )
    found = minimize(Genomes(), algorithm, ("n_gen", GENERATIONS), seed=seed).F
    found = found[np.argsort(found[:, 0])]
    return Points(found[:, 0].astype(np.int64), -found[:, 1])


def compare(make: Callable[[int], Elastic], seed: int) -> list[str | float]:
    space = make(seed)
    problem = space.problem
    note(f"{space.name}, seed {seed}: exact front")
    seconds, front = stopwatch(partial(exact, problem), REPEATS)
    whole_seconds, _ = stopwatch(lambda: solver(problem).front(most=POPULATION), REPEATS)
    note(f"{space.name}, seed {seed}: NSGA-II, {POPULATION} x {GENERATIONS}")
    evolution, sample = stopwatch(partial(evolved, space, seed))
    share = sample.hypervolume(problem) / front.hypervolume(problem)
    return [
        f"{space.name} ({space.size:.1e}), seed {seed}",
        f"{number(evolution / seconds)}x",
        f"{number(evolution / whole_seconds)}x",
        f"{share:.4f}",
        f"{sample.gap(front, problem):.3%}",
        f"{len(front.macs):,} / {len(sample.macs)}",
        seconds,
        evolution,
    ]


def programmes(space: Elastic) -> None:
    """Three budgets at once, each drawn near a common share of its range so that all compete."""
    rng, problem = np.random.default_rng(0), space.problem
    low, high = problem.extreme_costs
    objective = [-block.score for block, _ in problem.blocks]
    unit, _ = stopwatch(partial(exact, problem), REPEATS)
    times, gaps, binding = [], [], 0
    for i in range(TRIPLES):
        note(f"{space.name}: three budgets, {i + 1} of {TRIPLES}")
        budgets, share = Budgets(), rng.uniform(0.3, 0.7)
        for column in (MACS, BODY, BYTES):
            part = share + rng.uniform(-0.03, 0.03)
            budgets = budgets.replaced("max", column, int(low[column] + part * (high - low)[column]))
        seconds, found = stopwatch(partial(milp.minimise, problem, objective, budgets))
        if found is None:
            raise AssertionError("budgets within the ranges must be feasible")
        times.append(seconds)
        gaps.append((found.value - found.bound) / abs(found.value))
        alone = [
            Exact([problem], column, [int(budgets.high[column])]).best_score(0) or 0.0
            for column in (MACS, BODY, BYTES)
        ]
        assert problem.score(found.picks) <= min(alone) * (1 + 1e-9)
        binding += problem.score(found.picks) < min(alone) * (1 - 1e-9)
        one = milp.minimise(problem, objective, Budgets().replaced("max", MACS, int(budgets.high[MACS])))
        assert one is not None
        assert abs(problem.score(one.picks) / alone[0] - 1) < 1e-9
    print(
        f"{TRIPLES} triples of budgets on {space.name} (MACs, parameters without adapters, and bytes with 4 "
        f"or 8 bits a layer), solved by HiGHS to proof: largest gap {max(gaps):.1e}. In {binding} of them "
        f"the optimum lies below that of each budget alone; with MACs alone HiGHS and the exact front agree "
        f"on all {TRIPLES}.\n"
    )
    rows = [("median", statistics.median(times)), ("worst", max(times))]
    header = ["three budgets", "against one exact front", "seconds"]
    table(header, [[name, f"{number(taken / unit)}x", taken] for name, taken in rows])


def main() -> None:
    one_thread()
    print("## The exact front\n")
    heuristic = np.tile([0, 2, 0], 32)[None]
    macs = int(llama(0).evaluate(heuristic)[1][0])
    print(
        f"Score against MACs, with NSGA-II of population {POPULATION} x {GENERATIONS} generations beside it "
        f"(integer genes, vectorised evaluation): how many times longer it takes than all points of the "
        f"exact front, and than these with the architectures of {POPULATION} of them. Hypervolume is "
        f"NSGA-II's share of the exact one; the gap is its median shortfall at equal MACs in units of the "
        f"range of scores. The heuristic subnet of LLaMA has {macs / 1e12:.4f} TMACs, as in LoNAS.\n"
    )
    header = [
        "space", "NSGA-II / exact", f"with {POPULATION} architectures", "hypervolume",
        "gap", "points", "exact s", "NSGA-II s",
    ]  # fmt: skip
    table(header, [compare(make, seed) for make in (llama, bert) for seed in SEEDS])
    programmes(llama(0))


if __name__ == "__main__":
    main()
