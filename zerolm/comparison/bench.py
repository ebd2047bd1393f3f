"""How well the closed-form scores rank architectures whose trained results are published."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from zerolm.architecture import Architecture, Floats, Ints
from zerolm.calibration.alpha import GRID
from zerolm.comparison.published import BEST, Published
from zerolm.groundtruth.reader import (
    GroundTruth,
    View,
    chosen,
    locate,
    ranked,
    read,
    thinned,
    views,
)
from zerolm.scores import ScoreBatch, all_variants, make_score
from zerolm.scores.capacity import ALPHAS
from zerolm.statistics import (
    Bootstrap,
    Ceiling,
    Resampled,
    budget_ladder,
    enough,
    gain,
    interval,
    noise_ceiling,
    random_regret,
    regret,
    regret_curve,
    top_overlap,
    within_budget,
)

DRAWS: Final = 1000
More = Callable[[GroundTruth, View], Mapping[str, Floats]]
"""Further scores (n,) of the architectures of a view, by name; higher is expected to be better."""
PARAMETERS: Final = ("params", "body_params")
"""The baselines that a score has to beat to be worth more than counting."""


@dataclass(frozen=True, slots=True)
class Row:
    """Agreement of one score with one benchmark in one view. None stands for what is not defined.

    ``alpha`` is None for scores without one, and ``best`` where it was chosen by the labels themselves:
    then ``saw_labels`` is set and ``best_alpha`` names it. ``_low`` and ``_high`` bound 95 % bootstrap
    intervals. ``gain`` is the tau-b beyond that of ``body_params``, its interval paired. ``verdict`` is
    ``better`` where the whole interval lies above 0 and ``params`` is beaten too, ``not better`` where
    one of them has at least the same tau-b, else ``unclear``. ``within_budget`` is tau-b within deciles
    of body parameters, ``top_overlap`` the share of the best tenth among the highest-scored tenth,
    ``regret_1`` and ``regret_5`` the loss of quality under budgets (in the unit of the metric).
    """

    benchmark: str
    view: str | None
    metric: str
    score: str
    alpha: float | str | None
    n: int
    tau: float | None
    tau_low: float | None
    tau_high: float | None
    tau_random_ties: float | None
    rho: float | None
    rho_low: float | None
    rho_high: float | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    within_budget: float | None
    top_overlap: float
    regret_1: float
    regret_5: float
    baseline: bool
    verdict: str | None
    saw_labels: bool = False
    best_alpha: float | None = None

    @property
    def label(self) -> str:
        """The score with its alpha."""
        if self.alpha is None:
            return self.score
        return f"{self.score} {self.alpha}" + (f" ({self.best_alpha:g})" if self.saw_labels else "")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class AlphaPoint:
    """tau-b of ``zerolm`` at one alpha; ``level`` where the best alpha is not shown to be better."""

    alpha: float
    tau: float | None
    low: float | None
    high: float | None
    level: bool


@dataclass(frozen=True, eq=False)
class Section:
    """One benchmark in one view: its rows, and what the report draws.

    ``result`` (n,) is signed so that higher is better; ``scores`` and ``regrets`` (19,) go by the rows'
    labels; ``budgets`` (19,) are body parameters.
    """

    truth: GroundTruth
    view: str | None
    metric: str
    rows: list[Row]
    random_regret: tuple[float, float]
    ceiling: Ceiling | None
    curve: list[AlphaPoint]
    published: Published | None
    result: Floats
    budgets: Floats
    scores: dict[str, Floats]
    regrets: dict[str, Floats]

    @property
    def title(self) -> str:
        return self.truth.name + (f", view {self.view}" if self.view else "")

    @property
    def plateau(self) -> tuple[float, float] | None:
        """The stretch of alphas around the best one that are level with it."""
        taus = [-math.inf if point.tau is None else point.tau for point in self.curve]
        best = max(range(len(taus)), key=lambda i: taus[i])
        if not self.curve[best].level:
            return None
        low = high = best
        while low > 0 and self.curve[low - 1].level:
            low -= 1
        while high < len(taus) - 1 and self.curve[high + 1].level:
            high += 1
        return self.curve[low].alpha, self.curve[high].alpha

    def to_json(self) -> dict[str, Any]:
        return {
            "benchmark": self.truth.name,
            "view": self.view,
            "metric": self.metric,
            "n": len(self.result),
            "source": self.truth.source,
            "random_regret": list(self.random_regret),
            "ceiling": asdict(self.ceiling) if self.ceiling else None,
            "published": asdict(self.published) if self.published else None,
            "alpha_curve": [asdict(point) for point in self.curve],
            "alpha_plateau": self.plateau,
            "budgets": self.budgets.tolist(),
            "regret_by_budget": {label: curve.tolist() for label, curve in self.regrets.items()},
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """Scores compared with benchmarks: a section for each benchmark and view, and a word on the scores."""

    sections: list[Section]
    note: str = ""

    @property
    def rows(self) -> list[Row]:
        return [row for section in self.sections for row in section.rows]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, as ``zerolm bench run --json`` prints it."""
        return {
            "rows": [row.to_json() for row in self.rows],
            "sections": [section.to_json() for section in self.sections],
            **({"note": self.note} if self.note else {}),
        }


def bench(
    names: Sequence[str],
    *,
    data: str | None = None,
    metric: str | None = None,
    options: Mapping[str, Sequence[Any]] | None = None,
    draws: int = DRAWS,
    more: More = lambda *_: {},
    limit: int | None = None,
    view: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Agreement of every closed-form score with benchmarks, named or given as files.

    ``metric`` is the file's own unless named; intervals come from ``draws`` bootstrap resamples. ``options``
    lists the values of the scores' options, such as ``{"alpha": [0.5, 1.1]}``; a score that needs one which
    is not given is left out.
    ``more`` gives further scores by name; with ``limit`` only so many architectures of each benchmark
    count, evenly spread over the file; ``view`` names the only one that does. Everything is read and
    checked before anything is scored. Fewer than eight architectures have no intervals.
    """
    chosen_options = {"alpha": ALPHAS, **(options or {})}
    if len(chosen_options.get("init", ())) > 1:
        raise ValueError("a benchmark is read with one init at a time; give one")
    truths = [thinned(read(locate(name, data)), limit) for name in chosen(names, data)]
    metrics = [metric or truth.metric for truth in truths]
    results = [ranked(truth, name) for truth, name in zip(truths, metrics, strict=True)]
    readings = [views(truth) for truth in truths]
    sections: list[Section] = []
    for truth, name, result, reading in zip(truths, metrics, results, readings, strict=True):
        ceiling = noise_ceiling(result, repeated_networks(reading))
        bootstrap = Bootstrap(result, enough(len(result), draws))
        for each in (each for each in reading if view in (None, each.name)):
            progress(f"scoring {truth.name}" + (f", view {each.name}" if each.name else ""))
            others = more(truth, each)
            sections.append(_section(truth, each, name, bootstrap, chosen_options, ceiling, others))
    return Comparison(sections)


def repeated_networks(reading: Sequence[View]) -> Ints:
    """A label (n,) for each architecture; those that were trained as the same network share one.

    Where a benchmark has a view of what was trained, that one says so: its layers in order and their
    heads, whatever else the configuration names.
    """
    view = next((view for view in reading if view.name == "trained"), reading[0])
    labels: dict[Hashable, int] = {}
    return np.array(
        [labels.setdefault(_identity(a, view.name == "trained"), len(labels)) for a in view.architectures],
        np.int64,
    )


def _identity(architecture: Architecture, trained: bool) -> Hashable:
    if not trained:
        return json.dumps(architecture.choices, sort_keys=True)
    heads = tuple(layer["num_operation_heads"] for layer in architecture.choices["encoder_layers"])
    return architecture.layers, heads


@dataclass(frozen=True, eq=False)
class _Asked:
    """One score of a section, resampled, before it is compared with the baselines."""

    score: str
    alpha: float | str | None
    values: Floats
    found: Resampled
    baseline: bool = False
    best_alpha: float | None = None


def _section(
    truth: GroundTruth,
    view: View,
    metric: str,
    bootstrap: Bootstrap,
    options: Mapping[str, Sequence[Any]],
    ceiling: Ceiling | None,
    others: Mapping[str, Floats],
) -> Section:
    batch, result, alphas = ScoreBatch.of(view.architectures), bootstrap.result, options["alpha"]
    cost = make_score("body_params").of_many(batch)
    init = dict(zip(["init"], options.get("init", ()), strict=False))
    grid = {
        alpha: make_score("zerolm", alpha=alpha, **init).of_many(batch)
        for alpha in dict.fromkeys([*alphas, *GRID])
    }
    resampled = {alpha: bootstrap.resample(values) for alpha, values in grid.items()}
    best = max(GRID, key=lambda alpha: _or(resampled[alpha].observed.tau, -math.inf))
    asked = [
        *(_Asked("zerolm", alpha, grid[alpha], resampled[alpha]) for alpha in alphas),
        _Asked("zerolm", "best", grid[best], resampled[best], best_alpha=best),
    ]
    for name, variants in all_variants(options)[0].items():
        for variant in variants if name != "zerolm" else ():
            made = make_score(name, **variant)
            values = made.of_many(batch)
            label = " ".join([name, *(f"{option} {value}" for option, value in variant.items())])
            asked.append(_Asked(label, None, values, bootstrap.resample(values), made.baseline))
    known = {one.score for one in asked}
    asked += [
        _Asked(name, None, values, bootstrap.resample(values))
        for name, values in others.items()
        if name not in known
    ]
    parameters = {one.score: one.found for one in asked if one.score in PARAMETERS}
    curves = [regret_curve(one.values, result, cost, 1) for one in asked]
    rows = [
        _row(truth.name, view.name, metric, one, curve, parameters, result, cost)
        for one, curve in zip(asked, curves, strict=True)
    ]
    shown = {row.label: one.values for row, one in zip(rows, asked, strict=True)}
    return Section(
        truth,
        view.name,
        metric,
        rows,
        (random_regret(result, cost, 1), random_regret(result, cost, 5)),
        ceiling,
        [_point(alpha, resampled[alpha], resampled[best]) for alpha in GRID],
        BEST.get((truth.name, view.name)) if metric == truth.metric else None,
        result,
        budget_ladder(cost),
        shown,
        {row.label: curve for row, curve in zip(rows, curves, strict=True)},
    )


def _row(
    benchmark: str,
    view: str | None,
    metric: str,
    asked: _Asked,
    regrets: Floats,
    parameters: dict[str, Resampled],
    result: Floats,
    cost: Floats,
) -> Row:
    found = asked.found
    observed = found.observed
    tau, rho = interval(found.tau), interval(found.rho)
    gained = gain(found, parameters["body_params"])
    rivals = max(_or(other.observed.tau, -math.inf) for other in parameters.values())
    verdict = None
    if not asked.baseline and not math.isnan(observed.tau):
        verdict = "not better" if observed.tau <= rivals else "better" if gained[1] > 0 else "unclear"
    return Row(
        benchmark,
        view,
        metric,
        asked.score,
        asked.alpha,
        observed.n,
        tau=_defined(observed.tau),
        tau_low=_defined(tau.low),
        tau_high=_defined(tau.high),
        tau_random_ties=_defined(observed.tau_random_ties),
        rho=_defined(observed.rho),
        rho_low=_defined(rho.low),
        rho_high=_defined(rho.high),
        gain=_defined(gained[0]),
        gain_low=_defined(gained[1]),
        gain_high=_defined(gained[2]),
        within_budget=_defined(within_budget(asked.values, result, cost)),
        top_overlap=top_overlap(asked.values, result, max(1, len(result) // 10)),
        regret_1=float(np.mean(regrets)),
        regret_5=regret(asked.values, result, cost, 5),
        baseline=asked.baseline,
        verdict=verdict,
        saw_labels=asked.alpha == "best",
        best_alpha=asked.best_alpha,
    )


def _point(alpha: float, found: Resampled, best: Resampled) -> AlphaPoint:
    low, high = interval(found.tau)
    reach = gain(found, best)[2]
    return AlphaPoint(alpha, _defined(found.observed.tau), _defined(low), _defined(high), reach >= 0.0)


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else value


def _or(value: float, otherwise: float) -> float:
    return otherwise if math.isnan(value) else value
