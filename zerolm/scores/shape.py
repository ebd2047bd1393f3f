"""How good a decoder is by its shape and its training, in parameters: a law fitted to the Gemstones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Architecture, Floats, Ints, Shapes
from zerolm.scores.base import ScoreBatch, closed_form, make_score
from zerolm.scores.capacity import geo
from zerolm.settings import Setting

GEMSTONES_STEP: Final = 4_194_304
"""Tokens of a step of the networks that the law was fitted to."""
STEPS: Final = (477, 83_475)
"""The fewest and the most steps among them."""
RATIOS: Final = (3.2, 320.0)
"""The least and the largest hidden / depth among them."""
BODY: Final = 15
"""Weights of a layer of theirs, over hidden^2."""
WEIGHTS: Final = (0.5560, 0.05940, 3.0754, 7.3601)
"""e, k, the logarithm of the best hidden / depth of a network that is fully trained, and that of the steps at
which it is twice as large: least squares, benchmarks/aspect.py."""
COVARIANCE: Final = (
    (0.0658, -0.00182, -0.0710, 0.0104),
    (-0.00182, 0.0000793, 0.00201, -0.00119),
    (-0.0710, 0.00201, 0.0865, -0.0178),
    (0.0104, -0.00119, -0.0178, 0.349),
)
"""Of the weights, by refits to networks that were drawn anew."""
TRAIN_TOKENS: Final = Setting(
    "train_tokens",
    "integer",
    None,
    "tokens that shape_law's network is trained on; fully trained where none are given",
    low=1,
    high=1 << 60,
)
BATCH_TOKENS: Final = Setting(
    "batch_tokens", "integer", GEMSTONES_STEP, "tokens of a step of that training", low=1, high=1 << 40
)


def steps_of(train_tokens: int | None, batch_tokens: int) -> float:
    """Return the steps of a training, infinitely many without tokens, within those that the law knows.

    ``ValueError`` where a step is larger than the training.
    """
    if train_tokens is None:
        return float("inf")
    if batch_tokens > train_tokens:
        raise ValueError(
            f"batch_tokens {batch_tokens} is more than train_tokens {train_tokens}; at most that is possible"
        )
    return float(np.clip(train_tokens / batch_tokens, *STEPS))


def best_ratio(train_tokens: int | None = None, batch_tokens: int = GEMSTONES_STEP) -> float:
    """Return the best hidden / depth after a training."""
    return float(np.exp(_best(np.array(WEIGHTS), steps_of(train_tokens, batch_tokens))))


def by_backbone(
    depth: Ints, mean_width: Floats, outside: Ints, /, *, train_tokens: int | None, batch_tokens: int
) -> Floats:
    """Return what shape_law multiplies geo by, (n,): its source says how."""
    steps = steps_of(train_tokens, batch_tokens)
    return np.exp(_logarithm(np.array(WEIGHTS), (depth, mean_width, outside), steps))


@closed_form(
    "shape_law",
    source="geo (total / body)^e exp(-k (ln(hidden / depth) - m)^2), body 15 L d^2; benchmarks/aspect.md",
    backbone=by_backbone,
    settings=(TRAIN_TOKENS, BATCH_TOKENS),
)
def shape_law(shapes: Shapes, depth: Ints, /, *, train_tokens: int | None, batch_tokens: int) -> Floats:
    """Return ``geo`` of each layer, (n,); hidden and depth enter by the backbone."""
    return geo(shapes, depth)


@dataclass(frozen=True)
class Worth:
    """How many times the parameters another network needs to be as good, with its 95 % interval."""

    times: float
    low: float
    high: float


def worth(
    one: Architecture,
    other: Architecture,
    train_tokens: int | None = None,
    batch_tokens: int = GEMSTONES_STEP,
) -> Worth:
    """Return what a network is worth in parameters of another, by the law and its weights' covariance."""
    steps, weights = steps_of(train_tokens, batch_tokens), np.array(WEIGHTS)
    batch = ScoreBatch.of([one, other])
    backbones = (batch.depths, batch.widths, batch.outside)

    def ahead(weights: Floats) -> float:
        of_one, of_other = _logarithm(weights, backbones, steps)
        return float(of_one - of_other)

    sizes = np.log(make_score("geo").of_many(batch))
    change = ahead(weights) + float(sizes[0] - sizes[1])
    step = 1e-5
    axes = step * np.eye(len(weights))
    slopes = np.array([(ahead(weights + axis) - ahead(weights - axis)) / (2 * step) for axis in axes])
    margin = 1.96 * float(np.sqrt(slopes @ np.array(COVARIANCE) @ slopes))
    return Worth(*(float(np.exp(value)) for value in (change, change - margin, change + margin)))


def _best(weights: Floats, steps: float) -> float:
    """Return the logarithm of the best hidden / depth."""
    return float(weights[2] + np.log1p(np.exp(2 * (weights[3] - np.log(steps)))))


def _logarithm(weights: Floats, backbones: tuple[Ints, Floats, Ints], steps: float) -> Floats:
    """Return the logarithm of what geo is multiplied by, (n,)."""
    e, k = weights[:2]
    depth, width, outside = (np.asarray(column, np.float64) for column in backbones)
    total = np.log1p(outside / (BODY * depth * width**2))
    return np.asarray(e * total - k * (np.log(width / depth) - _best(weights, steps)) ** 2)
