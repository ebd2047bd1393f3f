"""The ablation of ZeroLM's score: matrices that count, initialisation, seed and alpha."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints, Shapes
from zerolm.calibration.alpha import Parts, mixed, parts, taus_of_grid
from zerolm.comparison.subjects import Subject, Unusable, subjects
from zerolm.groundtruth.reader import View
from zerolm.lab.ablation.ablation import Ablation, AblationSection, Draws, Effect, best_of_grid
from zerolm.lab.ablation.variants import EMBEDDED, embedding_terms, variants
from zerolm.progress import Progress, silent
from zerolm.scores import ScoreBatch, make_score
from zerolm.scores.capacity import INITIALISATIONS, variance
from zerolm.statistics import Bootstrap, Resampled, agreement, defined, enough, gain, kendall
from zerolm.statistics.bootstrap import RESAMPLES

DRAWN_SEEDS: Final = 10
EVEN: Final = 0.5
OWN: Final = "scaled"
"""The space's own initialisation: deviation 0.02, residual projections scaled where the space says so."""
INIT_LABELS: Final = {"scaled": "scaled residual", "normal": "normal 0.02"}

Values = tuple[str, float | None, bool, Floats]
"""A score, its alpha, whether the labels chose it, and what it gives, (n,)."""


def ablate(
    names: Sequence[str],
    *,
    data: str | None = None,
    metric: str | None = None,
    draws: int = RESAMPLES,
    unusable: Unusable | None = None,
    progress: Progress = silent,
) -> Ablation:
    """The ablation of every benchmark named, or given as a file.

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
    return Ablation(tuple(sections))


def _section(subject: Subject, view: View, bootstrap: Bootstrap) -> AblationSection:
    batch, result = ScoreBatch.of(view.architectures), bootstrap.result
    # Without scaled matrices the space's own initialisation is the normal one: it stands for both.
    scaled = bool(batch.shapes.scaled.any())
    inits = [init for init in INITIALISATIONS if scaled or init != "normal"]
    return AblationSection(
        subject.truth.name,
        view.name,
        subject.metric,
        subject.truth.is_higher_better(subject.metric),
        len(result),
        matrices=tuple(_effects(_matrix_variants(view, result), bootstrap)),
        initialisations=tuple(_effects(_initialised(batch, inits, scaled, result), bootstrap)),
        draws=tuple(
            _drawn(batch, init, label(init, scaled), alpha, result)
            for init in inits
            for alpha in (EVEN, 1.0, None)
        ),
        curve=curve(parts(batch), result),
    )


def label(init: str, scaled: bool) -> str:
    return INIT_LABELS["normal"] if init == OWN and not scaled else INIT_LABELS.get(init, init)


def curve(parts: Parts, result: Floats, rest: Floats | float = 0.0) -> tuple[float | None, ...]:
    """tau-b over the grid of alphas."""
    return tuple(defined(tau) for tau in taus_of_grid(parts, result, rest))


def _matrix_variants(view: View, result: Floats) -> Iterator[tuple[str, list[Values]]]:
    """Each variant with the scores that it gives."""
    for name, architectures in variants(view.architectures):
        yield name, _scores(ScoreBatch.of(architectures), result, {})
    terms = embedding_terms(view.architectures)
    yield EMBEDDED, _scores(ScoreBatch.of(view.architectures), result, terms)


def _scores(batch: ScoreBatch, result: Floats, terms: dict[str, Floats]) -> list[Values]:
    capacities, rest = parts(batch), terms.get("zerolm", 0.0)
    best = best_of_grid(curve(capacities, result, rest))
    values: list[Values] = [("zerolm", EVEN, False, mixed(capacities, EVEN, rest))]
    values.append(("zerolm", best, True, mixed(capacities, best, rest)))
    for name in ("geo", "stable_rank"):
        values.append((name, None, False, make_score(name).of_many(batch) + terms.get(name, 0.0)))
    return values


def _initialised(
    batch: ScoreBatch, inits: Iterable[str], scaled: bool, result: Floats
) -> Iterator[tuple[str, list[Values]]]:
    for init in inits:
        capacities = parts(batch, init)
        best = best_of_grid(curve(capacities, result))
        alphas = ((EVEN, False), (1.0, False), (best, True))
        yield label(init, scaled), [("zerolm", a, saw, mixed(capacities, a)) for a, saw in alphas]


def _effects(variants_values: Iterable[tuple[str, list[Values]]], bootstrap: Bootstrap) -> Iterator[Effect]:
    """Each score of each variant against the same score of the first variant."""
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


def _drawn(batch: ScoreBatch, init: str, shown: str, alpha: float | None, result: Floats) -> Draws:
    """Ten networks of each architecture; no ``alpha`` asks for the best one of the closed form."""
    capacities = parts(batch, init)
    used = best_of_grid(curve(capacities, result)) if alpha is None else alpha
    closed = mixed(capacities, used)
    scores = np.array([mixed(drawn_parts(batch, init, seed), used) for seed in range(DRAWN_SEEDS)])
    itself = agreement(closed, result)
    return Draws(
        shown,
        used,
        alpha is None,
        defined(itself.tau),
        defined(itself.tau_random_ties),
        tuple(map(defined, kendall(scores, result))),
        tuple(map(defined, kendall(scores, closed))),
    )


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
