"""The ablation of ZeroLM's score: matrices that count, initialisation, seed and alpha."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints, Shapes
from zerolm.calibration.alpha import GRID, Parts, mixed, parts, taus_of_grid
from zerolm.comparison.bench import Subject, Unusable, subjects
from zerolm.groundtruth.reader import View
from zerolm.lab.ablation.variants import EMBEDDED, embedding_terms, variants
from zerolm.progress import Progress, silent
from zerolm.scores import ScoreBatch, make_score
from zerolm.scores.capacity import INITIALISATIONS, variance
from zerolm.statistics import Bootstrap, Resampled, agreement, defined, enough, gain, kendall
from zerolm.statistics.bootstrap import RESAMPLES

DRAWN_SEEDS: Final = 10
EVEN: Final = 0.5
INIT_LABELS: Final = {"scaled": "scaled residual", "normal": "normal 0.02"}
"""The first is the space's own: deviation 0.02, residual projections scaled where the space says so."""

Values = tuple[str, float | None, bool, Floats]
"""A score, its alpha, whether the labels chose it, and what it gives, (n,)."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Agreement of one score under one variant. None stands for what is not defined.

    ``alpha`` is None for scores without one; ``saw_labels`` where it is the best of the grid for this
    variant. ``change`` is the tau-b beyond that of the same score under the first variant, ``low`` and
    ``high`` its paired 95 % bootstrap interval (the alpha is not chosen anew in each resample).
    """

    variant: str
    score: str
    alpha: float | None
    saw_labels: bool
    tau: float | None
    tau_random_ties: float | None
    change: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def column(self) -> str:
        """The score with its alpha, the same for all variants."""
        if self.alpha is None:
            return self.score
        return f"{self.score} {'best' if self.saw_labels else format(self.alpha, 'g')}"

    @property
    def direction(self) -> int:
        """-1 or 1 where the interval of the change lies on one side of 0, else 0."""
        if self.low is None or self.high is None:
            return 0
        return int(self.low > 0) - int(self.high < 0)


@dataclass(frozen=True, slots=True)
class Draws:
    """``zerolm`` of drawn networks: tau-b with the result and with the closed form, one a seed.

    ``closed`` and ``closed_random_ties`` are the agreement of the closed form itself.
    """

    init: str
    alpha: float
    saw_labels: bool
    closed: float | None
    closed_random_ties: float | None
    taus: tuple[float | None, ...]
    with_closed: tuple[float | None, ...]

    @property
    def summary(self) -> dict[str, float | None]:
        """Return mean, deviation and ends of ``taus``, and the mean of ``with_closed`` as ``agreement``."""
        taus, with_closed = (np.array(each, np.float64) for each in (self.taus, self.with_closed))
        numbers = (taus.mean(), taus.std(ddof=1), taus.min(), taus.max(), with_closed.mean())
        return dict(
            zip(("mean", "deviation", "low", "high", "agreement"), map(defined, numbers), strict=True)
        )


@dataclass(frozen=True, slots=True)
class BorrowedAlpha:
    """The best alpha of one benchmark used on another: the tau-b, and the loss to the other's own best."""

    alpha_of: str
    used_on: str
    alpha: float
    tau: float | None
    loss: float | None
    same_data: bool


@dataclass(frozen=True, slots=True)
class AblationSection:
    """One benchmark in one view. ``curve`` is the tau-b of ``zerolm`` over the grid of alphas."""

    benchmark: str
    view: str | None
    metric: str
    higher_is_better: bool
    n: int
    matrices: tuple[Effect, ...]
    initialisations: tuple[Effect, ...]
    draws: tuple[Draws, ...]
    curve: tuple[float | None, ...]

    @property
    def effects(self) -> tuple[Effect, ...]:
        return self.matrices + self.initialisations

    @property
    def title(self) -> str:
        return self.benchmark + (f", view {self.view}" if self.view else "")

    @property
    def best_alpha(self) -> float:
        return best_of_grid(self.curve)

    def borrowed(self, other: AblationSection) -> BorrowedAlpha:
        """Return the best alpha of another section used on this one."""
        tau, best = (self.curve[GRID.index(alpha)] for alpha in (other.best_alpha, self.best_alpha))
        loss = None if tau is None or best is None else best - tau
        is_same = other.benchmark == self.benchmark
        return BorrowedAlpha(other.title, self.title, other.best_alpha, tau, loss, is_same)


def ablate(
    names: Sequence[str],
    *,
    data: str | None = None,
    metric: str | None = None,
    draws: int = RESAMPLES,
    unusable: Unusable | None = None,
    progress: Progress = silent,
) -> tuple[AblationSection, ...]:
    """Return the ablation of every benchmark named, or given as a file: one section for each of its views.

    ``metric`` is the file's own unless named; ``draws`` bootstrap resamples. Everything is read and checked
    before anything is scored, as ``bench`` does. Fewer than eight architectures have no intervals.
    """
    ready = subjects(names, data, metric, unusable=unusable)
    sections: list[AblationSection] = []
    of = sum(len(subject.views) for subject in ready)
    for subject in ready:
        bootstrap = Bootstrap(subject.result, enough(len(subject.result), draws))
        for view in subject.views:
            where = f", view {view.name}" if view.name else ""
            progress(f"ablating {subject.truth.name}{where}", len(sections), of)
            sections.append(_section(subject, view, bootstrap))
    return tuple(sections)


def _section(subject: Subject, view: View, bootstrap: Bootstrap) -> AblationSection:
    batch, result = ScoreBatch.of(view.architectures), bootstrap.result
    # Without scaled matrices the space's own initialisation is the normal one: it stands for both.
    scaled = bool(batch.shapes.scaled.any())
    inits = {
        init: INIT_LABELS.get(init if scaled else init.replace("scaled", "normal"), init)
        for init in INITIALISATIONS
        if scaled or init != "normal"
    }
    alphas = (EVEN, 1.0, None)
    by_init = ((label, _mixed(parts(batch, init), result, alphas)) for init, label in inits.items())
    ways = [(init, label, alpha) for init, label in inits.items() for alpha in alphas]
    return AblationSection(
        subject.truth.name,
        view.name,
        subject.metric,
        subject.truth.is_higher_better(subject.metric),
        len(result),
        matrices=tuple(_effects(_matrix_variants(view, result), bootstrap)),
        initialisations=tuple(_effects(by_init, bootstrap)),
        draws=tuple(_drawn(batch, *way, result) for way in ways),
        curve=curve(parts(batch), result),
    )


def curve(parts: Parts, result: Floats, rest: Floats | float = 0.0) -> tuple[float | None, ...]:
    """Return tau-b over the grid of alphas."""
    return tuple(map(defined, taus_of_grid(parts, result, rest)))


def best_of_grid(taus: Sequence[float | None]) -> float:
    """Return the alpha with the best tau-b; of equals, as of one kind of matrix alone, that nearest 0.5."""
    rounded = [-math.inf if tau is None else round(tau, 12) for tau in taus]
    return max(zip(rounded, GRID, strict=True), key=lambda pair: (pair[0], -abs(pair[1] - 0.5)))[1]


def _mixed(
    capacities: Parts, result: Floats, alphas: Iterable[float | None], rest: Floats | float = 0.0
) -> list[Values]:
    """Return ``zerolm`` at each alpha; None is the one that agrees best with the result."""
    best = best_of_grid(curve(capacities, result, rest))
    used = [(best if alpha is None else alpha, alpha is None) for alpha in alphas]
    return [("zerolm", alpha, saw, mixed(capacities, alpha, rest)) for alpha, saw in used]


def _matrix_variants(view: View, result: Floats) -> Iterator[tuple[str, list[Values]]]:
    """Yield each variant with the scores that it gives."""
    terms = embedding_terms(view.architectures)
    for name, architectures in (*variants(view.architectures), (EMBEDDED, view.architectures)):
        batch, more = ScoreBatch.of(architectures), terms if name == EMBEDDED else {}
        values = _mixed(parts(batch), result, (EVEN, None), more.get("zerolm", 0.0))
        for score in ("geo", "stable_rank"):
            values.append((score, None, False, make_score(score).of_many(batch) + more.get(score, 0.0)))
        yield name, values


def _effects(variants_values: Iterable[tuple[str, list[Values]]], bootstrap: Bootstrap) -> Iterator[Effect]:
    """Yield each score of each variant against the same score of the first variant."""
    first: list[Resampled] = []
    for variant, values in variants_values:
        resampled = [bootstrap.resample(each[3]) for each in values]
        changes: list[tuple[float, ...]] = [()] * len(values)
        if first:
            changes = [gain(a, b) for a, b in zip(resampled, first, strict=True)]
        first = first or resampled
        for (score, alpha, saw, _), each, change in zip(values, resampled, changes, strict=True):
            numbers = (each.observed.tau, each.observed.tau_random_ties, *change)
            yield Effect(variant, score, alpha, saw, *map(defined, numbers))


def _drawn(batch: ScoreBatch, init: str, label: str, alpha: float | None, result: Floats) -> Draws:
    """Return ten networks of each architecture; without an ``alpha`` by the best one of the closed form."""
    ((_, used, saw_labels, closed),) = _mixed(parts(batch, init), result, [alpha])
    assert used is not None
    scores = np.array([mixed(drawn_parts(batch, init, seed), used) for seed in range(DRAWN_SEEDS)])
    itself = agreement(closed, result)
    closed_taus = defined(itself.tau), defined(itself.tau_random_ties)
    taus, with_closed = (tuple(map(defined, kendall(scores, other))) for other in (result, closed))
    return Draws(label, used, saw_labels, *closed_taus, taus, with_closed)


def drawn_norms(shapes: Shapes, depth: Ints, init: str, rng: np.random.Generator) -> Floats:
    """Return ||W||_F^2 of every matrix, (n, m), as if its weights had been drawn.

    The squares of k independent N(0, s^2) weights add up to s^2 times a chi-square variable with k degrees
    of freedom, so one number a matrix is enough. Xavier and Kaiming are the normal ones; their uniform
    siblings have the same expectation and 0.4 of the variance. An orthogonal matrix always has
    ||W||_F^2 = min(rows, cols): there is nothing to draw.
    """
    expected = variance(shapes, depth, init)
    if init == "orthogonal":
        return np.asarray(expected * shapes.weights)
    return np.where(shapes.present, expected * rng.chisquare(np.maximum(shapes.weights, 1)), 0.0)


def drawn_parts(batch: ScoreBatch, init: str, seed: int) -> tuple[Floats, Floats]:
    """Return S_attn and S_ffn (ZeroLM, equations 3-6) of one drawn network an architecture, (n,) each."""
    shapes, rng = batch.shapes, np.random.default_rng(seed)
    norms = drawn_norms(shapes, np.repeat(batch.depths, batch.depths), init, rng)
    capacity = norms / np.maximum(np.minimum(shapes.rows, shapes.cols), 1)
    starts = np.cumsum(batch.depths) - batch.depths
    attention, ffn = (
        np.add.reduceat((capacity * role).sum(axis=1), starts) for role in (shapes.attention, shapes.ffn)
    )
    return attention, ffn
