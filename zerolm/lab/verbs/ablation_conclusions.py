"""Sentences about ZeroLM's premises over all benchmarks of an ablation: one a question.

"Shown" means that the 95 % interval of a change lies on one side of 0. The views of one benchmark share
its results: they are counted as views, never as independent evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final

from zerolm.lab.ablation.ablation import Ablation, AblationSection, Effect
from zerolm.lab.ablation.variants import ATTENTION, EMBEDDED, FFN, FUSED, SPLIT, WITHOUT
from zerolm.lab.verbs.ablation_findings import (
    BEST,
    EVEN,
    borrowed,
    column,
    draws_of_space,
    listed,
    plain,
    signed,
)

DEAR: Final = 0.05
"""A loss of tau that a user would notice."""
STEADY: Final = 0.005
"""A difference of tau between draws and the closed form that is none."""


def conclusions(ablation: Ablation) -> dict[str, str]:
    """One sentence for each question."""
    return {
        "matrices": matrices(ablation),
        "initialisation": initialisation(ablation),
        "seed": seed(ablation),
        "transfer": transfer(ablation),
    }


def matrices(ablation: Ablation) -> str:
    """ZeroLM counts every matrix of attention and FFN and weights the two kinds by alpha: is each needed?"""
    parts = []
    for name in (EVEN, BEST):
        dropped = [
            each
            for section in ablation.sections
            for each in column(section.matrices, name)
            if each.variant.startswith(WITHOUT)
        ]
        lower, higher = shown_directions(dropped)
        parts.append(
            f"dropping one matrix is shown to lower the tau of {name} in {lower} and to raise it in "
            f"{higher} of {len(dropped)} cases"
        )
    fused = _effects(ablation, EVEN, SPLIT, FUSED)
    lower, higher = shown_directions(fused)
    parts.append(
        f"splitting or fusing q, k, v is shown to lower that of {EVEN} in {lower} and to raise it in "
        f"{higher} of {len(fused)} views"
    )
    above = [shown_directions(_effects(ablation, EVEN, kind))[1] for kind in (ATTENTION, FFN)]
    parts.append(f"attention alone is shown to beat it in {above[0]}, FFN alone in {above[1]}")
    lower, higher = shown_directions(_effects(ablation, EVEN, EMBEDDED))
    parts.append(f"embeddings are shown to lower it in {lower} and to raise it in {higher}")
    needed = sum(_alone(section) == [-1, -1] for section in ablation.sections)
    return (
        f"Matrices: {'; '.join(parts)}. ZeroLM's premise that attention and FFN are both needed, the best "
        f"mix beating either alone, is shown in {needed} of {len(ablation.sections)} views (the best mix "
        "saw the labels)."
    )


def initialisation(ablation: Ablation) -> str:
    """Does the ranking hang on how the matrices are initialised?"""
    parts, moved = [], 0
    for name in (EVEN, BEST):
        effects = [each for section in ablation.sections for each in column(section.initialisations, name)]
        changes = [each.change for each in effects if each.change is not None]
        if changes:
            lower, higher = shown_directions(effects)
            moved += lower + higher
            parts.append(
                f"{name} is shown to be worse in {lower} and better in {higher} of {len(changes)} cases (tau "
                f"{signed(min(changes))} to {signed(max(changes))})"
            )
    end = (
        "So the score hangs on the initialisation that it assumes; under Xavier, Kaiming and orthogonal a "
        "matrix counts by the ratio of its sides, not by its size."
        if moved
        else "So no dependence on the initialisation is shown."
    )
    return (
        f"Initialisation: with another than the space's own {'; '.join(parts) or 'nothing is defined'}. {end}"
    )


def seed(ablation: Ablation) -> str:
    """Is a score of drawn weights worth more or less than its expectation?"""
    draws = [
        each for section in ablation.sections for each in draws_of_space(section) if each.mean is not None
    ]
    if not draws:
        return "Seed: nothing is defined."
    parts = []
    for words, best in (("alpha 0.5", False), ("the best alpha", True)):
        some = [each for each in draws if each.saw_labels == best]
        if not some:
            continue
        spread = max(each.deviation or 0.0 for each in some)
        close = [each.agreement or 0.0 for each in some]
        parts.append(
            f"at {words} the tau of ten draws has a standard deviation of at most {plain(spread, 4)}, and "
            f"they agree with the closed form at tau-b {plain(min(close))} to {plain(max(close))}"
        )
    random = max(abs((each.mean or 0.0) - (each.closed_random_ties or 0.0)) for each in draws)
    tau = max(abs((each.mean or 0.0) - (each.closed or 0.0)) for each in draws)
    end = (
        "So a seed ranks no better and no worse than the closed form, but breaks its ties by chance."
        if random < STEADY
        else "So draws and the closed form rank differently."
    )
    return (
        f"Seed: {'; '.join(parts)}; their mean lies within {plain(random, 4)} of the closed form's tau with "
        f"ties broken at random, and within {plain(tau, 4)} of its tau-b. {end}"
    )


def transfer(ablation: Ablation) -> str:
    """Is there an alpha that serves everywhere?"""
    rows = [row for row in map(borrowed, ablation.transfers) if row]
    losses = [each.loss or 0.0 for row in rows for each in row]
    if not losses:
        return "Borrowed alphas: there is only one benchmark."
    dear = sum(loss > DEAR for loss in losses)
    safe = [row[0].alpha_of for row in rows if all((each.loss or 0.0) <= DEAR for each in row)]
    end = f"Within that everywhere: {listed(safe, 'and')}." if safe else "None is within that everywhere."
    alphas = [section.best_alpha for section in ablation.sections]
    return (
        f"Borrowed alphas: the best ones run from {min(alphas):g} to {max(alphas):g}; on another benchmark "
        f"they lose {plain(fmean(losses))} tau on average, {plain(max(losses))} at worst, and more than "
        f"{plain(DEAR, 2)} in {dear} of {len(losses)} cases. {end}"
    )


def shown_directions(effects: Iterable[Effect]) -> tuple[int, int]:
    """How many are shown to lower and how many to raise tau."""
    directions = [each.direction for each in effects]
    return directions.count(-1), directions.count(1)


def _alone(section: AblationSection) -> list[int]:
    """Whether attention alone and FFN alone are shown to be worse (-1) than the best mix."""
    return [each.direction for each in column(section.matrices, BEST) if each.variant in (ATTENTION, FFN)]


def _effects(ablation: Ablation, name: str, *variants: str) -> Sequence[Effect]:
    return [
        each
        for section in ablation.sections
        for each in column(section.matrices, name)
        if each.variant in variants
    ]
