"""The dictionary: the closed forms that agree best with a few labels, added up.

Every entry is a sum over layers times a power of the depth, and so is their weighted sum: a calibrated
score that the exact solvers take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product, starmap
from typing import Final

import numpy as np

from zerolm.architecture import Floats, Ints, Shapes
from zerolm.scores import ClosedForm, ScoreBatch
from zerolm.statistics import kendall

NODES: Final = 256
ENTRY_ALPHAS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
POWERS: Final = (0, 1)
SUMMED: Final = 5
"""Entries that are added up: one alone follows the noise of few labels, many blur what they say."""


def _semicircle(ratio: Floats, f: Callable[[Floats], Floats]) -> Floats:
    """E f(x) under the Marchenko-Pastur law of ``ratio`` = min / max in (0, 1], for each ratio, (r,).

    x are the eigenvalues of W W^T / (variance x max). With x = 1 + ratio + 2 sqrt(ratio) cos(t) the
    density becomes sin(t)^2 / x: the nodes and weights of Chebyshev's second kind.
    """
    angle = np.pi * np.arange(1, NODES + 1) / (NODES + 1)
    x = 1.0 + ratio[:, None] + 2.0 * np.sqrt(ratio)[:, None] * np.cos(angle)
    weight = 2.0 * np.sin(angle) ** 2 / ((NODES + 1) * x)
    return np.asarray((weight * f(x)).sum(axis=1), np.float64)


def spectral_sums(rows: Floats, cols: Floats) -> dict[str, Floats]:
    """Six sizes of random matrices, each of the shape of ``rows`` and ``cols`` (at least 1).

    Their expectation for unit variance in the Marchenko-Pastur limit: the longer and the shorter side,
    the stable rank, the nuclear norm, the effective rank (exponential of the entropy of the singular
    values; Roy and Vetterli, 2007) and the number of weights.
    """
    short, long = np.minimum(rows, cols), np.maximum(rows, cols)
    ratio, place = np.unique(short / long, return_inverse=True)
    root = _semicircle(ratio, np.sqrt)
    entropy = np.log(root) - _semicircle(ratio, lambda x: 0.5 * np.sqrt(x) * np.log(x)) / root
    place = place.reshape(short.shape)
    return {
        "long": long,
        "short": short,
        "stable_rank": rows * cols / (np.sqrt(rows) + np.sqrt(cols)) ** 2,
        "nuclear": short * np.sqrt(long) * root[place],
        "effective_rank": short * np.exp(entropy)[place],
        "weights": rows * cols,
    }


MATRIX_SUMS: Final = ("long", "short", "stable_rank", "nuclear", "effective_rank", "weights")


@dataclass(frozen=True, slots=True)
class DictionaryEntry:
    """L^power x sum over layers of alpha x (sum over attention) + (1 - alpha) x (sum over FFN).

    ``size`` names the sum over the matrices, or is ``width``: the width of the layer.
    """

    size: str
    alpha: float
    power: int

    def __str__(self) -> str:
        depth = " x L" if self.power else ""
        return "L x width" if self.size == "width" else f"{self.size} (alpha {self.alpha:g}){depth}"


ENTRIES: Final = (
    DictionaryEntry("width", 0.5, 0),
    *starmap(DictionaryEntry, product(MATRIX_SUMS, ENTRY_ALPHAS, POWERS)),
)


def _layer_terms(shapes: Shapes, depth: Ints, entries: Sequence[DictionaryEntry]) -> Floats:
    """Return the terms of layers in each entry, (e, n), from sizes summed over projections of a role."""
    present = shapes.present
    rows = np.where(present, shapes.rows // shapes.parts, 1).astype(np.float64)
    cols = np.where(present, shapes.cols, 1).astype(np.float64)
    attention, ffn = shapes.parts * shapes.attention, shapes.parts * shapes.ffn
    sums = {
        size: ((value * attention).sum(axis=1), (value * ffn).sum(axis=1))
        for size, value in spectral_sums(rows, cols).items()
    }
    sums["width"] = (shapes.width * 1.0, shapes.width * 1.0)
    return np.array(
        [
            (entry.alpha * sums[entry.size][0] + (1.0 - entry.alpha) * sums[entry.size][1])
            * np.asarray(depth, np.float64) ** entry.power
            for entry in entries
        ]
    )


def entry_values(batch: ScoreBatch) -> Floats:
    """The value of every entry for n architectures, (61, n)."""
    terms = _layer_terms(batch.shapes, np.repeat(batch.depths, batch.depths), ENTRIES)
    ends = np.cumsum(batch.depths)[:-1]
    return np.array([[math.fsum(part) for part in np.split(row, ends)] for row in terms])


@dataclass(frozen=True)
class Dictionary:
    """Entries with positive weights; ``centre`` and ``spread`` are those of their sum over the labels."""

    entries: tuple[DictionaryEntry, ...]
    weights: tuple[float, ...]
    centre: float
    spread: float

    def of(self, values: Floats) -> Floats:
        """The weighted sum (n,) from the values of all entries, (61, n)."""
        return np.asarray(np.array(self.weights) @ values[[ENTRIES.index(entry) for entry in self.entries]])

    def placed(self, values: Floats) -> Floats:
        """Return the weighted sum in deviations from its mean over the labels, (n,)."""
        return (self.of(values) - self.centre) / self.spread

    def score(self) -> ClosedForm:
        """The weighted sum as a closed form: additive over layers, higher is better."""

        def layer(shapes: Shapes, depth: Ints) -> Floats:
            return np.asarray(np.array(self.weights) @ _layer_terms(shapes, depth, self.entries))

        return ClosedForm("dictionary", layer, "closed forms chosen by labels", sees_depth=True)


def fit_dictionary(values: Floats, result: Floats) -> Dictionary:
    """The ``SUMMED`` entries of best tau-b with the labels, each divided by its deviation over them.

    ``values`` (61, n) are those of ``entry_values``, ``result`` (n,) is "higher is better". Entries of
    equal tau come in the order of ``ENTRIES``. ``ValueError`` where every entry is constant.
    """
    taus = np.round(kendall(values, result), 12)
    ranked = np.argsort(np.where(np.isnan(taus), np.inf, -taus), kind="stable")[:SUMMED]
    rows = [int(i) for i in ranked if not np.isnan(taus[i])]
    if not rows:
        raise ValueError("the labelled architectures do not differ in any closed form")
    weights = 1.0 / values[rows].std(axis=1)
    total = weights @ values[rows]
    return Dictionary(
        tuple(ENTRIES[i] for i in rows),
        tuple(float(weight) for weight in weights),
        float(total.mean()),
        float(total.std()) or 1.0,
    )
