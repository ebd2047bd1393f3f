"""Finished networks of ``llama_small``, their numbers, and a law of their losses at equal size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from llama_small import FOLDER, LENGTH, LLAMA, Plan, finished, read_rows
from llama_small_plan import SIZES, Planned

from zerolm.architecture import Architecture, Floats
from zerolm.costs import CostModel

DRAWS: Final = 1000
RATIO: Final = "FFN / attention"


@dataclass(frozen=True)
class Form:
    """A parabola in the logarithms of ``coordinate`` and of FFN / attention, and lines in others."""

    coordinate: str
    lines: tuple[str, ...] = ("heads a KV head",)

    @property
    def name(self) -> str:
        return f"law of {', '.join((self.coordinate, *self.lines[1:]))}"

    def features(self, numbers: dict[str, float]) -> list[float]:
        place, ratio, *lines = (float(np.log(numbers[n])) for n in (self.coordinate, RATIO, *self.lines))
        return [place, place**2, ratio, ratio**2, *lines]


OF_DEPTH: Final = Form("depth")
"""The form that findings are told of."""
FORMS: Final = (
    OF_DEPTH,
    Form("depth", ("heads a KV head", "parameters / body")),
    Form("hidden / depth"),
    Form("hidden"),
)


@dataclass(frozen=True, eq=False)
class Measured:
    """A shape with its losses (seeds, counts) after rising ``counts`` of tokens."""

    planned: Planned
    losses: Floats
    counts: tuple[int, ...]

    @property
    def mean(self) -> float:
        return float(self.losses[:, -1].mean())

    @cached_property
    def macs(self) -> int:
        """Return the multiply-accumulates of a token, of which training takes three times as many."""
        return int(CostModel(context=LENGTH // 2).of(self.planned.architecture)["macs"])

    def mean_after(self, tokens: float) -> float:
        """Return the mean loss after so many tokens, between counts in proportion to their logarithm."""
        return float(np.interp(np.log(tokens), np.log(self.counts), self.losses.mean(axis=0)))

    @cached_property
    def numbers(self) -> dict[str, float]:
        return shape_numbers(self.planned.architecture)


def shape_numbers(architecture: Architecture) -> dict[str, float]:
    """Return the ratios that tell a shape of a llama."""
    choices, costs = architecture.choices, CostModel().of(architecture)
    weights = {role: 0 for role in ("ffn", "attention")}
    for matrix in architecture.layers[0].matrices:
        weights[matrix.role] += matrix.weights
    return {
        "depth": architecture.depth,
        "hidden": choices["hidden"],
        "hidden / depth": choices["hidden"] / architecture.depth,
        RATIO: weights["ffn"] / weights["attention"],
        "heads a KV head": choices["heads"] / choices["kv_heads"],
        "head size": choices["head_size"],
        "parameters / body": costs["params"] / costs["body_params"],
    }


def measured(plan: Plan = LLAMA) -> list[Measured]:
    """Return the shapes of a plan that have finished runs."""
    rows = finished(read_rows(FOLDER / plan.rows))
    runs = {
        name: [sorted((int(count), loss) for count, loss in told["losses"].items()) for told in of_one]
        for name, of_one in rows.items()
    }
    return [
        Measured(one, np.array(runs[one.id])[..., 1], tuple(count for count, _ in runs[one.id][0]))
        for one in plan.planned()
        if one.id in runs
    ]


def deviation_of(runs: Sequence[Sequence[float]]) -> float:
    """Return the standard deviation of a run about its network's mean, pooled; nan without repeats."""
    freedom = sum(len(losses) - 1 for losses in runs)
    squares = sum(float(np.square(np.subtract(losses, np.mean(losses))).sum()) for losses in runs)
    return (squares / freedom) ** 0.5 if freedom else float("nan")


def two_errors(deviation: float, *runs: float) -> float:
    """Return two standard errors of the difference of means over so many runs each.

    A mean of n runs that counts w times is worth n / w^2 runs.
    """
    return float(2 * deviation * sum(1 / count for count in runs) ** 0.5)


def margin(error: float) -> str:
    """Return what a difference may be off by; nothing where no network is repeated yet."""
    return "" if np.isnan(error) else f"± {error:.4f}"


def seed_deviation(shapes: Sequence[Measured]) -> float:
    return deviation_of([one.losses[:, -1].tolist() for one in shapes])


def by_size(shapes: Sequence[Measured]) -> dict[str, list[Measured]]:
    sizes = {size: [one for one in shapes if one.planned.size == size] for size in SIZES}
    return {size: ones for size, ones in sizes.items() if len(ones) > 2}


@dataclass(frozen=True, eq=False)
class Law:
    """The loss of a size by the shape: ``levels`` by size, ``weights`` of the features of its ``form``."""

    levels: dict[str, float]
    weights: Floats
    form: Form

    @classmethod
    def fitted(cls, shapes: Sequence[Measured], form: Form = OF_DEPTH) -> Law:
        """Return the law by least squares over the means of shapes, with a level a size."""
        return cls._solved(shapes, np.array([[one.mean for one in shapes]]), form)[0]

    @classmethod
    def _solved(cls, shapes: Sequence[Measured], means: Floats, form: Form) -> list[Law]:
        """Return the law of each row of ``means`` (n, shapes)."""
        sizes = _sizes(shapes)
        solved = np.linalg.lstsq(_table(shapes, form), means.T, rcond=None)[0].T
        return [cls(dict(zip(sizes, one.tolist(), strict=False)), one[len(sizes) :], form) for one in solved]

    def penalty(self, numbers: dict[str, float]) -> float:
        """Return the loss that the shape adds."""
        return float(np.dot(self.form.features(numbers), self.weights))

    @property
    def optima(self) -> dict[str, float]:
        """Return the best coordinate and FFN / attention; nan where a parabola has no lowest point."""
        parabolas = {self.form.coordinate: self.weights[:2], RATIO: self.weights[2:4]}
        with np.errstate(over="ignore"):
            return {
                name: float(np.exp(-x / (2 * y))) if y > 0 else float("nan")
                for name, (x, y) in parabolas.items()
            }

    @property
    def slope(self) -> float:
        """Return how much the loss falls with the logarithm of the body, over the sizes."""
        bodies = np.log([SIZES[size] for size in self.levels])
        return float(-np.polyfit(bodies, list(self.levels.values()), 1)[0])

    @classmethod
    def draws(cls, shapes: Sequence[Measured], form: Form = OF_DEPTH) -> list[Law]:
        """Return laws fitted to the law's own losses with noise as large as its residuals.

        The noise of seeds is part of that. There are none where the law has as many weights as shapes.
        """
        law = cls.fitted(shapes, form)
        told = np.array([law.levels[one.planned.size] + law.penalty(one.numbers) for one in shapes])
        freedom = len(shapes) - np.linalg.matrix_rank(_table(shapes, form))
        if freedom < 1:
            return []
        residuals = told - np.array([one.mean for one in shapes])
        deviation = np.sqrt(np.square(residuals).sum() / freedom)
        noise = np.random.default_rng(0).normal(scale=deviation, size=(DRAWS, len(shapes)))
        return cls._solved(shapes, told + noise, form)


def _table(shapes: Sequence[Measured], form: Form) -> Floats:
    ends = np.array([[one.planned.size == size for size in _sizes(shapes)] for one in shapes], float)
    return np.hstack([ends, np.array([form.features(one.numbers) for one in shapes])])


def _sizes(shapes: Sequence[Measured]) -> list[str]:
    return [size for size in SIZES if any(one.planned.size == size for one in shapes)]
