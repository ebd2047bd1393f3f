"""How good a decoder is by its shape and its training, in parameters: a law fitted to the Gemstones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Architecture, Floats, Ints, Shapes
from zerolm.scores.base import ScoreBatch, closed_form, make_score
from zerolm.scores.capacity import geo
from zerolm.settings import Setting

BODY: Final = 15
"""Weights of a layer of every Gemstone over hidden^2: determines the size of a backbone's body."""
REFERENCE: Final = 20
"""Tokens a parameter of the body at which m is stated."""
TOKENS_A_PARAMETER: Final = (1.13, 15_500.0)
"""The fewest and the most that a Gemstone was trained on: what is beyond counts as these."""
RATIOS: Final = (3.2, 320.0)
"""The least and the largest hidden / depth of a Gemstone."""
DRAWS: Final = 1000
"""Of the weights, which intervals are taken from."""
TRAIN_TOKENS: Final = Setting(
    "train_tokens",
    "integer",
    None,
    "training tokens, for shape_law; default: the law over all trainings (2 to 350 B)",
    low=1,
    high=1 << 60,
)
Backbones = tuple[Ints, Floats, Ints]
"""Depth, mean width and weights outside of the layers, (n,) each."""


@dataclass(frozen=True)
class LawWeights:
    """The fitted e, k, m and t, with their covariance by refits to resampled networks."""

    values: tuple[float, float, float, float]
    covariance: tuple[tuple[float, ...], ...]


UNTOLD: Final = LawWeights(
    (0.6215, 0.0591, 3.1058, 0.0),
    (
        (0.05097, -0.001541, -0.05828, 0.0),
        (-0.001541, 7.475e-05, 0.001661, 0.0),
        (-0.05828, 0.001661, 0.07466, 0.0),
        (0.0, 0.0, 0.0, 0.0),
    ),
)
"""Where no training length is named: over all trainings of the Gemstones, 2 to 350 B tokens."""
TOLD: Final = LawWeights(
    (0.9402, 0.0597, 3.2833, -0.1682),
    (
        (0.07372, -0.001807, -0.04184, -0.01174),
        (-0.001807, 7.05e-05, 0.0007151, 0.000427),
        (-0.04184, 0.0007151, 0.07977, -0.006096),
        (-0.01174, 0.000427, -0.006096, 0.005832),
    ),
)


def by_backbone(depth: Ints, mean_width: Floats, outside: Ints, /, *, train_tokens: int | None) -> Floats:
    """Return the factor of geo in shape_law, (n,)."""
    weights = np.array(_weights(train_tokens).values)
    return np.exp(_logarithm(weights, (depth, mean_width, outside), train_tokens))


@closed_form(
    "shape_law",
    source="geo (total / body)^e exp(-k (ln(d / L) - m)^2), body 15 L d^2, m by tokens a parameter; "
    "benchmarks/aspect.md",
    backbone=by_backbone,
    fitted_to=("gemstones",),
    settings=(TRAIN_TOKENS,),
)
def shape_law(shapes: Shapes, depth: Ints, /, *, train_tokens: int | None) -> Floats:
    """Return ``geo`` of each layer, (n,); hidden and depth enter by the backbone."""
    return geo(shapes, depth)


@dataclass(frozen=True)
class ShapeEstimate:
    """A number by the law, with the interval that holds 95 % of its draws of weights."""

    value: float
    low: float
    high: float


def worth(one: Architecture, other: Architecture, train_tokens: int | None = None) -> ShapeEstimate:
    """Return a network's equivalent size as a multiple of another's; the part of geo has no interval."""
    batch = ScoreBatch.of([one, other])
    backbones, sizes = _backbones(batch), np.log(make_score("geo").of_many(batch))

    def ahead(weights: Floats) -> float:
        of_one, of_other = _logarithm(weights, backbones, train_tokens) + sizes
        return float(of_one - of_other)

    return _estimate(ahead, train_tokens)


def ratio_worth(architecture: Architecture, train_tokens: int | None = None) -> ShapeEstimate:
    """Return a network's equivalent size as a share of that with the best hidden / depth, 1 at most."""
    backbones = _backbones(ScoreBatch.of([architecture]))

    def lost(weights: Floats) -> float:
        gap = np.log(backbones[1] / backbones[0]) - _best(weights, backbones, train_tokens)
        return float(-weights[1] * gap[0] ** 2)

    return _estimate(lost, train_tokens)


def off_ratio(times: float, train_tokens: int | None = None) -> ShapeEstimate:
    """Return that share for a hidden / depth of ``times`` the best, whatever that is."""
    return _estimate(lambda weights: float(-weights[1] * np.log(times) ** 2), train_tokens)


def best_ratio(architecture: Architecture, train_tokens: int | None = None) -> ShapeEstimate:
    """Return the best hidden / depth of a network of that size, with its 95 % interval."""
    backbones = _backbones(ScoreBatch.of([architecture]))
    return _estimate(lambda weights: float(_best(weights, backbones, train_tokens)[0]), train_tokens)


def tokens_a_parameter(architecture: Architecture, train_tokens: int) -> float:
    """Return the tokens a parameter of the body, as the law counts it."""
    return float(train_tokens / (BODY * architecture.depth * architecture.mean_width**2))


def _weights(train_tokens: int | None) -> LawWeights:
    return UNTOLD if train_tokens is None else TOLD


def _estimate(logarithm: Callable[[Floats], float], train_tokens: int | None) -> ShapeEstimate:
    """Return the number of this logarithm by the weights, and the ends that hold 95 % of those by draws."""
    of = _weights(train_tokens)
    drawn = np.random.default_rng(0).multivariate_normal(of.values, of.covariance, DRAWS)
    low, high = np.percentile([logarithm(weights) for weights in drawn], [2.5, 97.5])
    return ShapeEstimate(*(float(np.exp(one)) for one in (logarithm(np.array(of.values)), low, high)))


def _backbones(batch: ScoreBatch) -> Backbones:
    return batch.depths, batch.widths, batch.outside


def _body(backbones: Backbones) -> Floats:
    depth, width, _ = backbones
    return np.asarray(BODY * depth * np.square(width), np.float64)


def _best(weights: Floats, backbones: Backbones, train_tokens: int | None) -> Floats:
    """Return the logarithm of the best hidden / depth, (n,)."""
    body = _body(backbones)
    if train_tokens is None:
        return np.full(body.shape, weights[2])
    tokens = np.clip(train_tokens / body, *TOKENS_A_PARAMETER)
    return np.asarray(weights[2] + weights[3] * np.log(tokens / REFERENCE))


def _logarithm(weights: Floats, backbones: Backbones, train_tokens: int | None) -> Floats:
    """Return the logarithm of what geo is multiplied by, (n,)."""
    depth, width, outside = backbones
    total = np.log1p(outside / _body(backbones))
    gap = np.log(width / depth) - _best(weights, backbones, train_tokens)
    return np.asarray(weights[0] * total - weights[1] * gap**2)
