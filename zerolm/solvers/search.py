"""The search of a space under budgets: method, best architectures, pick, front, certificate."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import numpy as np

from zerolm.architecture import Floats, Ints, Shapes
from zerolm.costs import COSTS, CostModel
from zerolm.progress import Progress, silent
from zerolm.scores import SCORES, ClosedForm, Score, WholeScore, make_score
from zerolm.settings import REQUIRED, nearest, shown
from zerolm.solvers.engine import PARAMS, PREFERENCE, Engine, StateList
from zerolm.solvers.evolution import SIZES, Evolution, evolution
from zerolm.solvers.exhaustive import LIMIT, States, count_states
from zerolm.solvers.limits import bounded_columns, single_limits
from zerolm.solvers.problem import (
    UNBOUNDED,
    Budgets,
    CostColumns,
    Problem,
    Solution,
    affordable,
    at_least,
    compile_problems,
    near,
)
from zerolm.solvers.proven import Proven
from zerolm.solvers.result import (
    Baseline,
    Binding,
    BoundsTest,
    Certificate,
    Choice,
    ParetoFront,
    Peak,
    Plateau,
    Question,
    SearchResult,
)
from zerolm.solvers.sampling import (
    Evaluate,
    Picks,
    Sample,
    additive,
    nsga2,
    pymoo_installed,
    random_sample,
)
from zerolm.solvers.tabled import BestOfCosts, best_of_costs
from zerolm.solvers.tied import Tied, tied
from zerolm.spaces import Backbone, SearchSpace, make_space, shape_text
from zerolm.statistics import TOLERANCE, tie_ranks

METHODS: Final = ("auto", "exact", "milp", "exhaustive", "rerank", "nsga2", "evolution", "random")
WHOLE_LIMIT: Final = 100_000
"""Architectures up to which a score that is not additive is evaluated on all of them."""
DRAWS: Final = 10_000
GUIDED: Final = 300
"""Architectures that each guide of a score puts forward, and as many points of its front."""
TIED: Final = 200
"""Equals beyond the last of the list that are still looked at, for one that is cheaper."""


class Infeasible(ValueError):
    """No architecture of the space keeps the budgets."""


@dataclass(frozen=True)
class _Setup:
    """Everything that stays the same while bounds are relaxed and baselines are asked."""

    score: Score
    costs: CostModel
    method: str
    seed: int
    sizes: Evolution


@dataclass(frozen=True, eq=False)
class _Run:
    """One space with one score and its budgets, compiled."""

    space: SearchSpace
    backbones: Sequence[Backbone]
    problems: Sequence[Problem]
    engine: Engine
    method: str
    column: int
    columns: CostColumns
    names: tuple[str, ...]
    told_apart: bool = False
    """Whether architectures of one shape are listed each for itself."""

    def choice(self, solution: Solution) -> Choice:
        architecture = self.space.assemble(self.backbones[solution.problem], solution.picks)
        costs = {name: int(value) for name, value in zip(self.names, solution.costs, strict=True)}
        return Choice(architecture, solution.score, costs)

    def best(self, top: int) -> tuple[list[Choice], float]:
        """Return the best distinct shapes in order, and the proven upper bound of the first.

        Of equals come first those with the smaller KV cache, then fewer MACs, then fewer parameters;
        where there are very many, of those that were looked at.
        """
        same_shape: dict[object, list[Choice]] = {}
        bound, last = -np.inf, np.inf
        patience = (
            0 if isinstance(self.engine, StateList | Tied) else TIED
        )  # a pool streams equals in their order
        for streamed, (solution, limit) in enumerate(self.engine.in_order()):
            bound = limit if not streamed else bound
            if len(same_shape) >= top and (streamed >= top + patience or not at_least(solution.score, last)):
                break
            choice = self.choice(solution)
            architecture = choice.architecture
            key = architecture.identity if self.told_apart else architecture.shape_key()
            same_shape.setdefault(key, []).append(choice)
            last = solution.score if len(same_shape) <= top else last
        choices = [_preferred(same) for same in same_shape.values()]
        ranks = tie_ranks(np.array([choice.score for choice in choices]))
        order = sorted(range(len(choices)), key=lambda i: (-int(ranks[i]), _preference(choices[i])))
        return [choices[i] for i in order[:top]], bound


def search(
    space: SearchSpace | str,
    score: Score | str = "geo",
    *,
    budgets: dict[str, int] | None = None,
    costs: CostModel | None = None,
    options: dict[str, Any] | None = None,
    top: int = 10,
    method: str = "auto",
    seed: int = 0,
    sizes: Evolution = SIZES,
    compare: bool = True,
    floor: float | None = None,
    progress: Progress = silent,
) -> SearchResult:
    """Return the best architectures of ``space`` by ``score`` within ``budgets``.

    ``budgets`` maps ``max_`` or ``min_`` of a cost to an integer, such as ``{"max_params": 40_000_000}``;
    ``costs`` says how the network is run; ``options`` are the score's, such as ``{"alpha": 1.1}``;
    ``sizes`` are those of an evolution. ``compare`` also asks what the baselines choose and what each bound
    costs. The pick scores at least ``floor`` where anything within the budgets does. Raises ``Infeasible``
    where nothing fits and ``ValueError`` for arguments that make no sense.
    """
    start = time.perf_counter()
    if method not in METHODS:
        raise ValueError(f"method {shown(method)} is not known{nearest(method, METHODS)}")
    if top < 1:
        raise ValueError(f"top must be at least 1, not {top}")
    space = make_space(space) if isinstance(space, str) else space
    costs = costs or CostModel()
    score = make_score(score, costs, **(options or {})) if isinstance(score, str) else score
    setup = _Setup(score, costs, method, seed, sizes)
    limits = Budgets.of(budgets or {}, costs.names)
    progress(f"building the tables of {space.name}")
    backbones = list(space.backbones())
    if isinstance(score, WholeScore) and score.sees_choices:
        backbones = [backbone.apart for backbone in backbones]
    run = _compile(space, backbones, limits, setup)
    if isinstance(score, ClosedForm) and not any(problem.scored for problem in run.problems):
        raise ValueError(f"{score.name} is 0 for every architecture of {space.name} here; name another score")
    progress(f"searching {space.name} ({run.method})")
    best, bound = run.best(top)
    if not best:
        raise Infeasible(_explain(run, limits, setup))
    top_score = best[0].score
    if isinstance(run.engine, Proven):
        best = _led_by(run.choice(run.engine.cheapest(top_score)), best)[:top]
    progress("counting ties, choosing the pick")
    ties = run.engine.count(top_score)
    near_ties = run.engine.count(near(top_score))
    measured = isinstance(score, WholeScore) and score.measured
    least = top_score if measured else near(top_score)
    if floor is not None and at_least(top_score, floor):
        least = max(least, min(floor, top_score))
    pick = run.choice(run.engine.cheapest(least))
    progress("drawing the front")
    points = [run.choice(point) for point in run.engine.front()]
    gap = max(0.0, bound - top_score) / max(abs(top_score), 1e-300)
    certificate = Certificate(
        run.method,
        run.engine.optimal and gap <= TOLERANCE,
        gap if run.engine.optimal else None,
        round(time.perf_counter() - start, 3),
        "exact" if ties.exact and near_ties.exact else "at least",
    )
    baselines: list[Baseline] = []
    bounds = BoundsTest()
    tested = compare and run.engine.optimal and isinstance(score, ClosedForm)
    if compare:
        progress("asking the baselines")
        proven = replace(setup, method="auto")
        baselines = _baselines(run, limits, proven)
        if tested:
            progress("relaxing each bound")
            bounds = _bounds(run, limits, proven, best[0])
    return SearchResult(
        Question(space, score.name, score.options, dict(budgets or {}), costs.conditions),
        certificate,
        pick,
        best,
        ParetoFront(costs.names[run.column], points, run.engine.complete_front),
        Plateau(ties, near_ties, _landscape(run)),
        baselines,
        bounds,
    )


def _compile(
    space: SearchSpace,
    backbones: Sequence[Backbone],
    budgets: Budgets,
    setup: _Setup,
    score: Score | None = None,
    columns: CostColumns | None = None,
) -> _Run:
    """Return a search that is ready to be asked; ``columns`` are those of an earlier one of the same."""
    score, columns = score or setup.score, {} if columns is None else columns
    if isinstance(score, ClosedForm):
        backbones = [backbone.merged for backbone in backbones]
    additive_score = score if isinstance(score, ClosedForm) else _nothing(score)
    problems = compile_problems(backbones, additive_score, setup.costs, columns)
    column = next(iter(bounded_columns(budgets)), PARAMS)
    method = _method(setup.method, score, problems, budgets, column)
    evaluate = additive(problems) if isinstance(score, ClosedForm) else _whole(space, backbones, score)
    told_apart, names = isinstance(score, WholeScore) and score.sees_choices, budgets.names
    engine: Engine
    states: States | Sample
    if isinstance(score, WholeScore) and score.table and method == "exact":
        states = best_of_costs(backbones, problems, budgets, score.table)
        engine = BestOfCosts(states, budgets, column, True)
        return _Run(space, backbones, problems, engine, method, column, columns, names, told_apart)
    if method in ("exact", "milp"):
        engine = Proven(problems, budgets, column, method == "milp")
        return _Run(space, backbones, problems, engine, method, column, columns, names)
    if method == "exhaustive" and isinstance(score, ClosedForm) and tied(problems):
        engine = Tied(problems, budgets, column)
        return _Run(space, backbones, problems, engine, method, column, columns, names)
    proven = method == "exhaustive"
    if method == "exhaustive":
        states = States.of(problems)
        if isinstance(score, WholeScore):
            proven = bool(np.all(states.ways == 1))  # else it may see what a shape leaves open
            states = _rescored(states, budgets, evaluate)
    elif method == "rerank" and isinstance(score, WholeScore):
        states = _guided(space, backbones, problems, budgets, setup, score, evaluate)
    elif method == "evolution":
        states = evolution(problems, evaluate, budgets, setup.seed, setup.sizes)
    elif method == "random" and told_apart:
        drawn = Evolution(setup.sizes.population * setup.sizes.generations, generations=1)
        states = evolution(problems, evaluate, budgets, setup.seed, drawn)
    elif method == "nsga2":
        states = nsga2(problems, evaluate, budgets, column, seed=setup.seed)
    else:
        states = random_sample(problems, evaluate, DRAWS, setup.seed)
    if isinstance(score, WholeScore):
        # What shares a shape need not share a score: only what was looked at counts.
        states = replace(states, ways=np.ones(len(states.score), np.int64))
    engine = StateList(states, budgets, column, proven)
    return _Run(space, backbones, problems, engine, method, column, columns, names, told_apart)


def _method(method: str, score: Score, problems: Sequence[Problem], budgets: Budgets, column: int) -> str:
    states = count_states(problems)
    if isinstance(score, WholeScore):
        if score.table and method in ("auto", "exact"):
            return "exact"
        if method in ("exact", "milp"):
            others = "exhaustive, " + "rerank, " * bool(score.guides) + "nsga2, evolution or random"
            raise ValueError(f"score {score.name!r} is not additive; use {others}")
        if method == "rerank" and not score.guides:
            raise ValueError(
                f"score {score.name!r} names no closed forms to guide it; use nsga2, evolution or random"
            )
        if method != "auto":
            return method
        if states <= WHOLE_LIMIT:
            return "exhaustive"
        if score.guides:
            return "rerank"
        return "nsga2" if pymoo_installed() else "random"
    if method == "rerank":
        raise ValueError(f"score {score.name!r} is additive: nothing is to be re-ranked; use exact or milp")
    if method != "auto":
        return method
    if states <= LIMIT or tied(problems):
        return "exhaustive"
    return "milp" if single_limits(problems, budgets, column) is None else "exact"


def _nothing(score: Score) -> ClosedForm:
    """Return tables of zeros, for scores that need the whole network."""

    def layer(shapes: Shapes, depth: Ints) -> Floats:
        return np.zeros(len(shapes))

    return ClosedForm(score.name, layer, score.source)


def _whole(space: SearchSpace, backbones: Sequence[Backbone], score: WholeScore) -> Evaluate:
    return lambda pairs: score.of_many([space.assemble(backbones[i], picks) for i, picks in pairs])


def _guided(
    space: SearchSpace,
    backbones: Sequence[Backbone],
    problems: Sequence[Problem],
    budgets: Budgets,
    setup: _Setup,
    score: WholeScore,
    evaluate: Evaluate,
) -> Sample:
    """Return the best architectures within the budgets, and the fronts, of the score's guides, scored."""
    guided: dict[tuple[int, Picks], None] = {}
    for guide in score.guides:
        run = _compile(space, backbones, budgets, replace(setup, method="auto"), guide)
        best = [solution for solution, _ in islice(run.engine.in_order(), GUIDED)]
        if not best:
            raise Infeasible(_explain(run, budgets, setup))
        front = list(run.engine.front())
        chosen = [front[i] for i in np.unique(np.linspace(0, len(front) - 1, GUIDED).astype(int))]
        guided |= dict.fromkeys(
            (solution.problem, _split(solution.picks, problems[solution.problem]))
            for solution in (*best, *chosen)
        )
    pairs = list(guided)
    scores = evaluate(pairs)
    return Sample.of(
        problems,
        [
            Solution(index, picks, float(value), problems[index].cost(picks))
            for (index, picks), value in zip(pairs, scores, strict=True)
        ],
    )


def _split(picks: Picks, problem: Problem) -> Picks:
    """Return picks of merged blocks as those of the blocks that a problem has."""
    layers = itertools.chain.from_iterable(picks)
    return tuple(tuple(islice(layers, count)) for _, count in problem.blocks)


def _rescored(states: States, budgets: Budgets, evaluate: Evaluate) -> States:
    """Return the states with a score of whole networks; those beyond the budgets are not built: 0."""
    if len(states.score) > WHOLE_LIMIT:
        raise ValueError(
            f"method 'exhaustive' would build {len(states.score)} architectures, more than {WHOLE_LIMIT}; "
            f"use nsga2, evolution or random"
        )
    allowed = np.flatnonzero(budgets.allow(states.costs))
    solutions = [states.solution(int(i)) for i in allowed]
    scores = np.zeros(len(states.score))
    if len(allowed):
        scores[allowed] = evaluate([(solution.problem, solution.picks) for solution in solutions])
    return replace(states, score=scores)


def _led_by(first: Choice, choices: Sequence[Choice]) -> list[Choice]:
    """Return ``first``, then the choices of other shapes."""
    key = first.architecture.shape_key()
    return [first, *(choice for choice in choices if choice.architecture.shape_key() != key)]


def _preferred(same: Sequence[Choice]) -> Choice:
    """Return the cheapest of one shape's choices (best first) that tie with the first."""
    return min((c for c in same if at_least(c.score, same[0].score)), key=_preference)


def _landscape(run: _Run) -> list[Peak]:
    peaks: dict[tuple[int, float], float] = {}
    for index, score in run.engine.peaks().items():
        key = run.backbones[index].depth, run.backbones[index].width
        peaks[key] = max(score, peaks.get(key, score))
    return [Peak(depth, width, score) for (depth, width), score in sorted(peaks.items())]


def _preference(choice: Choice) -> list[int]:
    return [choice.costs[COSTS[column]] for column in PREFERENCE]


def _baselines(main: _Run, budgets: Budgets, setup: _Setup) -> list[Baseline]:
    baselines = []
    for name in SCORES:
        entry = SCORES.entry(name)
        needs = any(setting.default is REQUIRED for setting in entry.options)
        if not entry.value.baseline or needs or name == setup.score.name:
            continue
        baseline = make_score(name, setup.costs)
        run = _compile(main.space, main.backbones, budgets, setup, baseline, main.columns)
        solution = next(run.engine.in_order(), None)
        if solution is None:
            continue
        choice = run.choice(solution[0])
        scored = Choice(choice.architecture, setup.score.of(choice.architecture), choice.costs)
        baselines.append(Baseline(name, choice.score, scored))
    return baselines


def _bounds(main: _Run, budgets: Budgets, setup: _Setup, best: Choice) -> BoundsTest:
    """Return which bounds, each relaxed alone, allow a better score: by 10 %, or a range opened whole."""
    binding, free, held = list[Binding](), list[str](), []

    def ask(
        bound: str, kind: str, at: float | str, to: float | str, wider: SearchSpace, limits: Budgets
    ) -> None:
        every = main.backbones if wider is main.space else list(wider.backbones())
        held.append(every)  # the ids of what it is made of stay its own
        backbones = affordable(every, setup.costs, limits, main.columns)
        run = _compile(wider, backbones, limits, setup, columns=main.columns)
        solution = next(run.engine.in_order(), None)
        if solution is None:
            return
        score = solution[0].score
        gain = (score - best.score) / abs(best.score) if best.score else None
        if score > best.score if gain is None else gain > TOLERANCE:
            words = shape_text(run.choice(solution[0]).architecture) if kind == "range" else ""
            binding.append(Binding(bound, kind, at, to, score, gain, words))
        else:
            free.append(bound)

    for side, column in budgets.active(main.problems):
        value = int((budgets.high if side == "max" else budgets.low)[column])
        relaxed = value * 11 // 10 if side == "max" else value * 9 // 10
        limits = budgets.replaced(side, column, relaxed)
        ask(f"{side}_{budgets.names[column]}", "budget", value, relaxed, main.space, limits)
    for bound in main.space.bounds(best.architecture):
        kind = "range" if isinstance(bound.at, str) else "shape"
        ask(bound.name, kind, bound.at, bound.wider_to, bound.wider, budgets)
    return BoundsTest(True, sorted(binding, key=lambda bound: bound.score, reverse=True), free)


def _explain(run: _Run, budgets: Budgets, setup: _Setup) -> str:
    """Return which budgets cannot be kept, and the nearest values that can."""
    if not run.engine.optimal or isinstance(run.engine, BestOfCosts):
        method, count = run.method, make_score("params", setup.costs)
        run = _compile(run.space, run.backbones, budgets, replace(setup, method="auto"), count)
        if next(run.engine.in_order(), None) is not None:
            others = "evolution" if isinstance(setup.score, WholeScore) else "exact or milp"
            return f"none of the architectures that {method} looked at keeps the budgets; use {others}"
    active = budgets.active(run.problems)
    hints = []
    for side, column in active:
        free = budgets.replaced(side, column, UNBOUNDED if side == "max" else 0)
        value = run.engine.extreme(side, column, free)
        if value is not None:
            limit = int((budgets.high if side == "max" else budgets.low)[column])
            word = "at least" if side == "max" else "at most"
            hints.append(f"{side}_{budgets.names[column]} {limit} would have to be {word} {value}")
    given = ", ".join(
        f"{side}_{budgets.names[c]} {(budgets.high if side == 'max' else budgets.low)[c]}"
        for side, c in active
    )
    if not hints:
        return f"no architecture of {run.space.name} keeps {given}, nor all but one of these bounds"
    return f"no architecture of {run.space.name} keeps {given}: {', or '.join(hints)}"
