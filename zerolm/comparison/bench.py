"""How well the closed-form scores rank architectures whose trained results are published."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.calibration.alpha import GRID
from zerolm.comparison.results import ALIKE, AlphaPoint, Comparison, ScoreRow, Section
from zerolm.groundtruth.reader import View, chosen, locate, ranked, read, views
from zerolm.groundtruth.truth import GroundTruth, thinned
from zerolm.progress import Progress, silent
from zerolm.scores import SCORES, Score, ScoreBatch, all_variants, make_score
from zerolm.scores.capacity import ALPHAS
from zerolm.statistics import (
    Bootstrap,
    Ceiling,
    Resampled,
    defined,
    enough,
    gain,
    interval,
    noise_ceiling,
    ordered_pairs,
    pairs_of_similar_cost,
    pairs_within_groups,
    regret,
    regret_curve,
    top_overlap,
    within_budget,
)
from zerolm.statistics.bootstrap import RESAMPLES

Unusable = Callable[[ValueError], None]
"""Called with the reason why a benchmark is omitted."""
PARAMETERS: Final = ("params", "body_params")
"""The baselines that a score has to beat to be worth more than counting."""
More = Callable[[GroundTruth, View], Mapping[str, Floats]]
"""Further scores (n,) of the architectures of a view, by name; higher is expected to be better."""


def bench(
    names: Sequence[str],
    *,
    data: str | None = None,
    metric: str | None = None,
    options: Mapping[str, Sequence[Any]] | None = None,
    draws: int = RESAMPLES,
    more: More = lambda *_: {},
    limit: int | None = None,
    view: str | None = None,
    unusable: Unusable | None = None,
    progress: Progress = silent,
) -> Comparison:
    """Return the agreement of every closed-form score with benchmarks, named or given as files.

    ``metric`` is the file's own unless named; intervals come from ``draws`` bootstrap resamples. ``options``
    lists the values of the scores' options, such as ``{"alpha": [0.5, 1.1]}``; a score that needs one which
    is not given is left out, and so is one that fails. ``more`` gives further scores by name; ``limit`` is
    the largest number of architectures of each benchmark, evenly spread over the file; ``view`` names the
    only one that does. Everything is read and checked before anything is scored: an unusable benchmark raises
    ``ValueError``, or is passed to ``unusable`` and omitted. Fewer than eight architectures have no
    intervals.
    """
    values = {"alpha": ALPHAS, **(options or {})}
    if len(values.get("init", ())) > 1:
        raise ValueError("a benchmark is read with one init at a time; give one")
    sections: list[Section] = []
    ready = subjects(names, data, metric, limit=limit, unusable=unusable)
    of = sum(view in (None, reading.name) for subject in ready for reading in subject.views)
    for subject in ready:
        ceiling = noise_ceiling(*runs_of(subject))
        bootstrap = Bootstrap(subject.result, enough(len(subject.result), draws))
        for reading in subject.views:
            if view in (None, reading.name):
                where = f", view {reading.name}" if reading.name else ""
                progress(f"scoring {subject.truth.name}{where}", len(sections), of)
                others = more(subject.truth, reading)
                sections.append(section_of(subject, reading, bootstrap, values, ceiling, others))
    return Comparison(sections)


@dataclass(frozen=True, eq=False)
class _Scored:
    """One score of a section, resampled, before it is compared with the baselines."""

    score: str
    alpha: float | str | None
    values: Floats
    resampled: Resampled
    baseline: bool = False
    best_alpha: float | None = None
    saw_labels: bool = False


def section_of(
    subject: Subject,
    view: View,
    bootstrap: Bootstrap,
    options: Mapping[str, Sequence[Any]],
    ceiling: Ceiling | None,
    others: Mapping[str, Floats],
) -> Section:
    """Return the section of one view; ``others`` are further scores (n,) by name."""
    batch, result, alphas = ScoreBatch.of(view.architectures), bootstrap.result, options["alpha"]
    cost = make_score("body_params").of_many(batch)
    total = make_score("params").of_many(batch)
    pairs = pairs_within_groups(subject.groups) if subject.groups else pairs_of_similar_cost(total, ALIKE)
    init = dict(zip(["init"], options.get("init", ()), strict=False))
    grid = {
        alpha: make_score("zerolm", alpha=alpha, **init).of_many(batch)
        for alpha in dict.fromkeys([*alphas, *GRID])
    }
    resampled = {alpha: bootstrap.resample(values) for alpha, values in grid.items()}
    best = max(GRID, key=lambda alpha: _or(resampled[alpha].observed.tau, -math.inf))
    scored = [
        *(_Scored("zerolm", alpha, grid[alpha], resampled[alpha]) for alpha in alphas),
        _Scored("zerolm", "best", grid[best], resampled[best], best_alpha=best, saw_labels=True),
    ]
    left_out: dict[str, str] = {}
    for label, name, variant in _others(options):
        try:
            score = make_score(name, **variant)
            values = _finite(score, batch)
        except Exception as error:  # a stranger's score may raise anything
            left_out[label] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            continue
        saw_labels = subject.truth.name in SCORES[name].fitted_to
        scored.append(
            _Scored(label, None, values, bootstrap.resample(values), score.baseline, saw_labels=saw_labels)
        )
    names = {one.score for one in scored}
    scored += [
        _Scored(name, None, values, bootstrap.resample(values))
        for name, values in others.items()
        if name not in names
    ]
    parameters = {one.score: one.resampled for one in scored if one.score in PARAMETERS}
    rows, scores, regrets = [], {}, {}
    for one in scored:
        curve = regret_curve(one.values, result, cost, 1)
        ordered = ordered_pairs(one.values, result, pairs)
        row = ScoreRow(
            benchmark=subject.truth.name,
            view=view.name,
            metric=subject.metric,
            score=one.score,
            alpha=one.alpha,
            n=len(result),
            **_agreement(one, parameters),
            within_budget=defined(within_budget(one.values, result, cost)),
            top_overlap=top_overlap(one.values, result, max(1, len(result) // 10)),
            regret_1=float(np.mean(curve)),
            regret_5=regret(one.values, result, cost, 5),
            baseline=one.baseline,
            saw_labels=one.saw_labels,
            best_alpha=one.best_alpha,
            pairs_right=defined(ordered.share),
            pairs=ordered.n,
        )
        rows.append(row)
        scores[row.label], regrets[row.label] = one.values, curve
    return Section(
        truth=subject.truth,
        view=view.name,
        metric=subject.metric,
        rows=rows,
        ceiling=ceiling,
        curve=[_point(alpha, resampled[alpha], resampled[best]) for alpha in GRID],
        result=result,
        scores=scores,
        regrets=regrets,
        left_out=left_out,
    )


def _others(options: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Return every score but ``zerolm`` in all its variants: its label, name and options."""
    for name, variants in all_variants(options)[0].items():
        for variant in variants if name != "zerolm" else ():
            yield " ".join([name, *(f"{option} {value}" for option, value in variant.items())]), name, variant


def _finite(score: Score, batch: ScoreBatch) -> Floats:
    """Return the scores of a batch, (n,); ``ValueError`` where they are not n finite numbers."""
    values = np.asarray(score.of_many(batch), np.float64)
    if values.shape != batch.depths.shape or not np.isfinite(values).all():
        raise ValueError("it does not give one finite number an architecture")
    return values


def _agreement(scored: _Scored, parameters: Mapping[str, Resampled]) -> dict[str, Any]:
    """Return the fields of a row that say how it agrees, and whether it beats ``parameters``."""
    resampled = scored.resampled
    observed = resampled.observed
    tau, rho = interval(resampled.tau), interval(resampled.rho)
    gained = gain(resampled, parameters["body_params"])
    rivals = max(_or(other.observed.tau, -math.inf) for other in parameters.values())
    verdict = None
    if not scored.baseline and not math.isnan(observed.tau):
        verdict = "not better" if observed.tau <= rivals else "better" if gained[1] > 0 else "unclear"
    numbers = {
        "tau": observed.tau, "tau_low": tau.low, "tau_high": tau.high,
        "tau_random_ties": observed.tau_random_ties,
        "rho": observed.rho, "rho_low": rho.low, "rho_high": rho.high,
        "gain": gained[0], "gain_low": gained[1], "gain_high": gained[2],
    }  # fmt: skip
    return {**{name: defined(number) for name, number in numbers.items()}, "verdict": verdict}


def _point(alpha: float, resampled: Resampled, best: Resampled) -> AlphaPoint:
    low, high = interval(resampled.tau)
    reach = gain(resampled, best)[2]
    return AlphaPoint(alpha, defined(resampled.observed.tau), defined(low), defined(high), reach >= 0.0)


def _or(value: float, otherwise: float) -> float:
    return otherwise if math.isnan(value) else value


@dataclass(frozen=True, eq=False)
class Subject:
    """A benchmark by one ``metric``: its ``result`` (n,), higher is better, and its readings."""

    truth: GroundTruth
    metric: str
    result: Floats
    views: list[View]

    @property
    def groups(self) -> list[str | None] | None:
        """Return the group of equal size that each architecture is of; None where the file names none."""
        groups = [entry.group for entry in self.truth.architectures]
        return groups if any(group is not None for group in groups) else None


def subjects(
    names: Sequence[str],
    data: str | None,
    metric: str | None,
    *,
    limit: int | None = None,
    unusable: Unusable | None = None,
) -> list[Subject]:
    """Return the benchmarks named, or given as files, each once.

    ``metric`` is the file's own unless named; at most ``limit`` architectures are used. A benchmark that
    cannot be compared raises ``ValueError`` or, where ``unusable`` is given, is passed to it and omitted. It
    is an error if all are.
    """
    ready: list[Subject] = []
    errors: list[ValueError] = []
    for name in dict.fromkeys(chosen(names, data)):
        try:
            truth = thinned(read(locate(name, data)), limit)
            named_metric = truth.metric_of(metric)
            ready.append(Subject(truth, named_metric, ranked(truth, named_metric), views(truth)))
        except ValueError as error:
            if unusable is None:
                raise
            errors.append(error)
    if not ready:
        raise ValueError(f"none of {len(errors)} benchmarks can be used; the first: {errors[0]}")
    for problem in errors:
        if unusable is not None:
            unusable(problem)
    return ready


def runs_of(subject: Subject) -> tuple[Floats, Ints]:
    """Return the results (m,) of all runs, higher is better, and a label (m,) of the network of each.

    Architectures that were trained as the same network share a label. Where a benchmark has a view of what
    was trained, that one says so: its layers in order and their heads, whatever else a configuration names.
    """
    view = next((view for view in subject.views if view.name == "trained"), subject.views[0])
    sign = 1.0 if subject.truth.is_higher_better(subject.metric) else -1.0
    numbers: dict[Hashable, int] = {}
    labels, further, results = list[int](), list[int](), list[float]()
    for architecture, entry in zip(view.architectures, subject.truth.architectures, strict=True):
        identity: Hashable = json.dumps(architecture.choices, sort_keys=True)
        if view.name == "trained":
            heads = (layer["num_operation_heads"] for layer in architecture.choices["encoder_layers"])
            identity = architecture.layers, tuple(heads)
        labels.append(numbers.setdefault(identity, len(numbers)))
        repeats = entry.repeats.get(subject.metric, ())
        results += [sign * value for value in repeats]
        further += labels[-1:] * len(repeats)
    return np.append(subject.result, results), np.array(labels + further, np.int64)
