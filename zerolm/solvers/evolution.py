"""Evolution of architectures within budgets, for scores that do not add up and are dear.

As single-path supernets are searched (arXiv 1904.00420, algorithm 1; ELM, arXiv 2510.27037).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np

from zerolm.architecture import Ints
from zerolm.solvers.engine import PARAMS
from zerolm.solvers.exhaustive import States, listable
from zerolm.solvers.problem import Budgets, Picks, Problem, Solution, single_limits
from zerolm.solvers.proven import Proven
from zerolm.solvers.sampling import Draw, Evaluate, Sample, scored, uniform

BARREN_DRAWS: Final = 200
"""Children in a row that may all be known or beyond the budgets."""
Genes = tuple[int, Picks]


@dataclass(frozen=True)
class Evolution:
    """Sizes of an evolution: of each generation after the first, half are crossovers, half are mutants.

    Parents are the ``parents`` best of all so far; every gene mutates with probability ``mutation``.
    """

    population: int = 50
    generations: int = 40
    parents: int = 10
    mutation: float = 0.1


USUAL_SIZES: Final = Evolution()


def evolution(
    problems: Sequence[Problem],
    evaluate: Evaluate,
    budgets: Budgets,
    seed: int = 0,
    sizes: Evolution = USUAL_SIZES,
) -> Sample:
    """Return all that was evaluated: distinct architectures within the budgets, a generation at a time.

    Where crossover and mutation give nothing new, architectures are sampled; it ends where samples give
    nothing new either. All that keeps the budgets is evaluated where that is no more than asked for and can
    be listed, and where draws keep no budget an exact solver gives one architecture: the sample is empty only
    where nothing keeps the budgets. It repeats with its ``seed``.
    """
    able = [index for index, problem in enumerate(problems) if _reaches(problem, budgets)]
    if not able:
        return Sample.of(problems, [])
    searched = [problems[index] for index in able]
    if listable(searched):
        states = States.of(searched)
        every = np.flatnonzero(budgets.allow(states.costs)).tolist()
        if len(every) <= sizes.population * sizes.generations:
            listed = [states.solution(i) for i in every]
            return scored(problems, [(able[one.problem], one.picks) for one in listed], evaluate)
    breeder = _Breeder(problems, budgets, able, sizes.mutation, random.Random(seed))
    solutions: dict[Genes, Solution] = {}
    for generation in range(sizes.generations):
        best = sorted(solutions.values(), key=lambda solution: -solution.score)[: sizes.parents]
        brood: dict[Genes, Ints] = {}
        if generation:
            half = sizes.population // 2
            breeder.add(brood, half, solutions, partial(breeder.crossover, best))
            breeder.add(brood, sizes.population - half, solutions, partial(breeder.mutant, best))
        breeder.add(brood, sizes.population - len(brood), solutions, breeder.drawn)
        if not (brood or solutions):
            programmes = single_limits(searched, budgets, PARAMS) is None
            first = next(Proven(searched, budgets, PARAMS, programmes).in_order(), None)
            brood = {} if first is None else {(able[first[0].problem], first[0].picks): first[0].costs}
        if not brood:
            break
        for (genes, costs), score in zip(brood.items(), evaluate(list(brood)), strict=True):
            solutions[genes] = Solution(*genes, float(score), costs)
    return Sample.of(problems, list(solutions.values()))


@dataclass(frozen=True)
class _Breeder:
    problems: Sequence[Problem]
    budgets: Budgets
    able: Sequence[int]
    """The problems that can keep each budget by itself."""
    mutation: float
    generator: random.Random

    @cached_property
    def _draw(self) -> Draw:
        return uniform([self.problems[index] for index in self.able])

    def add(
        self,
        brood: dict[Genes, Ints],
        count: int,
        evaluated: dict[Genes, Solution],
        make: Callable[[], Genes],
    ) -> None:
        """Add ``count`` new architectures within the budgets, fewer where these are too rare."""
        wanted, since = len(brood) + count, 0
        while len(brood) < wanted and since < BARREN_DRAWS:
            genes, since = make(), since + 1
            if genes in evaluated or genes in brood:
                continue
            costs = self._costs(genes)
            if self.budgets.allow(costs):
                brood[genes], since = costs, 0

    def crossover(self, parents: Sequence[Solution]) -> Genes:
        """Return two parents of one backbone, each layer of either by a coin."""
        index = self.generator.choice(parents).problem
        same = [parent for parent in parents if parent.problem == index]
        a, b = (self.generator.choice(same).picks for _ in range(2))
        return index, tuple(
            tuple(sorted(self.generator.choice(pair) for pair in zip(x, y, strict=True)))
            for x, y in zip(a, b, strict=True)
        )

    def mutant(self, parents: Sequence[Solution]) -> Genes:
        """Return a parent with resampled layers; where its backbone is resampled, all layers are."""
        parent = self.generator.choice(parents)
        if len(self.able) > 1 and self.generator.random() < self.mutation:
            return self.drawn()
        return parent.problem, tuple(
            tuple(sorted(self._changed(table.multiplicity, pick) for pick in picks))
            for (table, _), picks in zip(self.problems[parent.problem].blocks, parent.picks, strict=True)
        )

    def drawn(self) -> Genes:
        """Return an architecture, each equally likely; one beyond the budgets is led towards them."""
        place, picks = self._draw(self.generator)
        index = self.able[place]
        blocks = self.problems[index].blocks
        excess = self._excess((index, picks))
        for _ in range(3 * sum(count * len(table) for table, count in blocks)):
            if not excess:
                break
            block = self.generator.randrange(len(blocks))
            layers = list(picks[block])
            layers[self.generator.randrange(len(layers))] = self.generator.randrange(len(blocks[block][0]))
            other = (*picks[:block], tuple(sorted(layers)), *picks[block + 1 :])
            if (step := self._excess((index, other))) <= excess:
                picks, excess = other, step
        return index, picks

    def _changed(self, multiplicity: Sequence[int], pick: int) -> int:
        if self.generator.random() >= self.mutation:
            return pick
        return self.generator.choices(range(len(multiplicity)), multiplicity)[0]

    def _costs(self, genes: Genes) -> Ints:
        return self.problems[genes[0]].cost(genes[1])

    def _excess(self, genes: Genes) -> float:
        """Return by what shares the costs are beyond the budgets, 0 within."""
        costs, low, high = self._costs(genes), self.budgets.low, self.budgets.high
        over = np.maximum(costs - high, 0) / np.maximum(high, 1)
        under = np.maximum(low - costs, 0) / np.maximum(low, 1)
        return float((over + under).sum())


def _reaches(problem: Problem, budgets: Budgets) -> bool:
    low, high = problem.extreme_costs
    return bool((low <= budgets.high).all() and (high >= budgets.low).all())
