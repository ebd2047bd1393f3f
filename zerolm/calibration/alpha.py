"""ZeroLM's choice of alpha by labels (arXiv 2503.18646, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Floats
from zerolm.scores import ScoreBatch, make_score
from zerolm.statistics import kendall

GRID: Final = tuple(round(step / 10, 1) for step in range(-15, 16))
"""The alphas that Algorithm 1 tries."""
CANCELLED: Final = 1e-12
"""The share of its terms below which a sum is rounding alone."""

Parts = tuple[Floats, Floats]
"""S_attn and S_ffn, (n,) each."""


@dataclass(frozen=True)
class Alpha:
    """An alpha to use, the one that the algorithm gives literally, and why they differ or look unsafe."""

    alpha: float
    literal: float
    warnings: tuple[str, ...] = ()


def parts(batch: ScoreBatch, init: str = "scaled") -> Parts:
    """S_attn and S_ffn of architectures in closed form; ``scaled`` is their space's own initialisation."""
    return (
        make_score("zerolm", alpha=1.0, init=init).of_many(batch),
        make_score("zerolm", alpha=0.0, init=init).of_many(batch),
    )


def mixed(parts: Parts, alpha: float, rest: Floats | float = 0.0) -> Floats:
    """alpha S_attn + (1 - alpha) S_ffn + ``rest``, (n,), exactly 0 where they cancel but for rounding."""
    attention, ffn = alpha * parts[0], (1.0 - alpha) * parts[1]
    values = np.asarray(attention + ffn + rest)
    scale = np.abs(attention) + np.abs(ffn) + np.abs(rest)
    return np.where(np.abs(values) <= CANCELLED * scale, 0.0, values)


def taus_of_grid(parts: Parts, result: Floats, rest: Floats | float = 0.0) -> Floats:
    """tau-b of ``mixed`` with each alpha of ``GRID``, (g,); nan where the score is constant."""
    return kendall(np.array([mixed(parts, alpha, rest) for alpha in GRID]), result)


def algorithm1(batch: ScoreBatch, result: Floats) -> Alpha:
    """Algorithm 1, benchmark sampling: the mean of the two alphas that agree best with the labels.

    ``result`` (n,) is "higher is better", so the sign of tau is kept: |tau| could pick an alpha that ranks
    backwards. Of equal alphas the smaller magnitude comes first, and above zero before below. Two alphas that
    are no neighbours on the grid may have a bad one between them: then the better of the two is used, with a
    warning. ``ValueError`` where no alpha distinguishes the architectures.
    """
    agreements = taus_of_grid(parts(batch), result)
    if np.isnan(agreements).all():
        raise ValueError("Algorithm 1 is undefined here: results, or both attention and FFN, do not differ")
    taus = [float(tau) for tau in np.nan_to_num(agreements, nan=-1.0)]
    first, second = sorted(range(len(GRID)), key=lambda i: (-round(taus[i], 12), abs(GRID[i]), -i))[:2]
    literal = round((GRID[first] + GRID[second]) / 2, 3)
    if abs(first - second) == 1:
        return Alpha(literal, literal)
    warning = (
        f"the two best alphas, {GRID[first]:g} and {GRID[second]:g}, are no neighbours: "
        f"{GRID[first]:g} is used instead of their mean {literal:g}"
    )
    return Alpha(GRID[first], literal, (warning,))
