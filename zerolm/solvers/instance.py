"""A search as an instance: one space, one score and its budgets as numbers, ready for any method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from zerolm.costs import CostModel
from zerolm.scores import Score
from zerolm.solvers.engine import PARAMS
from zerolm.solvers.evolution import USUAL_SIZES, Evolution
from zerolm.solvers.problem import Budgets, CostColumns, Problem, bounded_columns, compile_problems
from zerolm.solvers.sampling import Evaluate, additive
from zerolm.spaces import Backbone, SearchSpace


@dataclass(frozen=True, eq=False)
class Setup:
    """How all instances of a search compute costs and sample, for any relaxed bound and any score.

    ``columns`` remembers costs of candidates and of ends for the next instance.
    """

    costs: CostModel = field(default_factory=CostModel)
    seed: int = 0
    sizes: Evolution = USUAL_SIZES
    columns: CostColumns = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Instance:
    """A space, a score and budgets as numbers; ``column`` is the cost of its front."""

    space: SearchSpace
    backbones: Sequence[Backbone]
    problems: Sequence[Problem]
    score: Score
    budgets: Budgets
    setup: Setup

    @classmethod
    def of(
        cls,
        space: SearchSpace,
        backbones: Sequence[Backbone],
        score: Score,
        budgets: Budgets,
        setup: Setup,
    ) -> Instance:
        if score.additive:
            backbones = [backbone.merged for backbone in backbones]
        problems = compile_problems(backbones, score.terms, setup.costs, setup.columns)
        return cls(space, backbones, problems, score, budgets, setup)

    def scored_by(self, score: Score) -> Instance:
        return Instance.of(self.space, self.backbones, score, self.budgets, self.setup)

    @property
    def column(self) -> int:
        """Return the first cost with an upper budget, else the parameters."""
        return next(iter(bounded_columns(self.budgets)), PARAMS)

    @cached_property
    def evaluate(self) -> Evaluate:
        """Return the function that scores picks: by the tables, or by networks where it is no sum."""
        if self.score.additive:
            return additive(self.problems)
        return lambda pairs: self.score.of_many(
            [self.space.assemble(self.backbones[index], picks) for index, picks in pairs]
        )
