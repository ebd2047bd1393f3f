"""The choices of the simplest scores within the same budgets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from zerolm.scores import SCORES, make_score
from zerolm.settings import REQUIRED
from zerolm.solvers.instance import Instance
from zerolm.solvers.result import Baseline
from zerolm.solvers.solver import Solver


def baselines(instance: Instance) -> Iterator[Baseline]:
    """Yield the choice of every baseline score but the instance's own, scored by that too."""
    for name in SCORES:
        entry = SCORES.entry(name)
        needs = any(setting.default is REQUIRED for setting in entry.options)
        if not entry.value.baseline or needs or name == instance.score.name:
            continue
        solver = Solver.of(instance.scored_by(make_score(name, instance.setup.costs)))
        solution = solver.first()
        if solution is not None:
            choice = solver.choice(solution)
            score = instance.score.of(choice.architecture)
            yield Baseline(name, choice.score, replace(choice, score=score))
