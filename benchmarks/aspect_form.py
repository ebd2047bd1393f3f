"""Forms of how good a decoder is by its shape and by how long it is trained, and their fits to losses.

ln N_eff = ln geo + e ln(total / body) - k (ln(hidden / depth) - m)^2, where m, the best logarithm of
hidden / depth, is a constant or depends on training: see ``DRIVERS``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.optimize import least_squares

from zerolm.architecture import Architecture, Floats
from zerolm.costs import CostModel
from zerolm.scores import make_score
from zerolm.spaces import make_space

GEMSTONES_STEP: Final = 4_194_304
"""Tokens of a step of every Gemstone."""
COUNTS: Final = 20
"""Counts of tokens that a fit reads of each curve, at equal ratios, fewer where they coincide."""
AT_TOKENS: Final = np.log(1e10)
AT_RATIO: Final = np.log(20)


@dataclass(frozen=True, eq=False)
class Trainings:
    """Networks that are trained alike, with what the form reads: each column is (n,)."""

    geo: Floats
    total: Floats
    aspect: Floats
    body: Floats
    tokens: Floats
    steps: Floats
    hidden: Floats
    """All are logarithms: ``total`` is of all parameters over the body's, ``aspect`` of hidden / depth."""

    @classmethod
    def of(
        cls, architectures: Sequence[Architecture], tokens: Sequence[int], steps: Sequence[int]
    ) -> Trainings:
        costs = [CostModel().of(one) for one in architectures]
        body = np.log([cost["body_params"] for cost in costs])
        return cls(
            np.log(make_score("geo").of_many(architectures)),
            np.log([cost["params"] for cost in costs]) - body,
            np.log([one.mean_width / one.depth for one in architectures]),
            body,
            np.log(tokens),
            np.log(steps),
            np.log([one.mean_width for one in architectures]),
        )

    def at(self, places: Any) -> Trainings:
        """Return those at some places."""
        return Trainings(*(column[places] for column in vars(self).values()))


def static(weights: Floats, of: Trainings) -> Floats:
    return np.full(len(of.geo), weights[0])


def by_tokens(weights: Floats, of: Trainings) -> Floats:
    return np.asarray(weights[0] + weights[1] * (of.tokens - AT_TOKENS))


def by_tokens_a_parameter(weights: Floats, of: Trainings) -> Floats:
    return np.asarray(weights[0] + weights[1] * (of.tokens - of.body - AT_RATIO))


def by_steps(weights: Floats, of: Trainings) -> Floats:
    """Return the logarithm of a floor times 1 + (a number of steps / steps)^2."""
    return np.asarray(weights[0] + np.logaddexp(0, 2 * (weights[1] - of.steps)))


@dataclass(frozen=True)
class Driver:
    """What the best hidden / depth depends on: ``best`` gives its logarithm by weights, which begin so."""

    name: str
    best: Callable[[Floats, Trainings], Floats]
    begin: tuple[float, ...]


def floor_by_steps(weights: Floats, of: Trainings) -> Floats:
    """Return the logarithm of a floor times 1 + a number of steps / steps."""
    return np.asarray(weights[0] + np.logaddexp(0, weights[1] - of.steps))


def floor_by_tokens(weights: Floats, of: Trainings) -> Floats:
    return np.asarray(weights[0] + np.logaddexp(0, 2 * (weights[1] - of.tokens)))


def floor_by_tokens_a_parameter(weights: Floats, of: Trainings) -> Floats:
    return np.asarray(weights[0] + np.logaddexp(0, 2 * (weights[1] - of.tokens + of.body)))


STATIC: Final = Driver("static", static, (3.0,))
TOKENS_A_PARAMETER: Final = Driver("T", by_tokens_a_parameter, (3.3, -0.15))
DRIVERS: Final = (
    STATIC,
    TOKENS_A_PARAMETER,
    Driver("D", by_tokens, (3.5, -0.18)),
    Driver("steps+floor", by_steps, (3.0, 7.4)),
)
"""The drivers that predictions were written down of."""
TRIED_LATER: Final = (
    Driver("steps+floor, power 1", floor_by_steps, (3.0, 7.0)),
    Driver("D+floor", floor_by_tokens, (3.0, 22.0)),
    Driver("T+floor", floor_by_tokens_a_parameter, (3.0, 2.0)),
)


@dataclass(frozen=True, eq=False)
class ShapeForm:
    """A driver with its weights: e, k and those of the driver."""

    driver: Driver
    weights: Floats

    def best(self, of: Trainings) -> Floats:
        """Return the best hidden / depth (n,)."""
        return np.exp(self.driver.best(self.weights[2:], of))

    def score(self, of: Trainings) -> Floats:
        """Return ln N_eff (n,)."""
        return _score(self.driver, self.weights, of)


def _score(driver: Driver, weights: Floats, of: Trainings) -> Floats:
    e, k = weights[:2]
    return np.asarray(of.geo + e * of.total - k * (of.aspect - driver.best(weights[2:], of)) ** 2)


@dataclass(frozen=True, eq=False)
class Curves:
    """Losses (n,) of trainings; those of one ``level`` differ in nothing but the network."""

    trainings: Trainings
    losses: Floats
    levels: Floats
    networks: Floats
    """The number of the network that a row is of."""

    def at(self, places: Any) -> Curves:
        """Return the rows at some places."""
        return Curves(
            self.trainings.at(places), self.losses[places], self.levels[places], self.networks[places]
        )

    def of_networks(self, numbers: Sequence[int]) -> Curves:
        """Return the rows of some networks, as often as each is named."""
        return self.at(np.concatenate([np.flatnonzero(self.networks == number) for number in numbers]))


BODY: Final = 15
"""Weights of a layer of a Gemstone over hidden^2."""


def by_backbone(curves: Curves) -> Curves:
    """Return the curves with all parameters over a body of 15 L d^2, which a backbone tells without its "
    "layers."""
    of = curves.trainings
    outside = np.log(np.expm1(of.total)) + of.body
    body = np.log(BODY) + 3 * of.hidden - of.aspect
    return replace(curves, trainings=replace(of, body=body, total=np.log1p(np.exp(outside - body))))


def joined(parts: Sequence[Curves]) -> Curves:
    """Return the rows of several, whose levels and networks stay apart."""
    levels, networks = (
        np.concatenate([np.unique(getattr(part, name), return_inverse=True)[1] + 1e6 * i
                        for i, part in enumerate(parts)])
        for name in ("levels", "networks")
    )  # fmt: skip
    columns = [
        np.concatenate(column)
        for column in zip(*(vars(part.trainings).values() for part in parts), strict=True)
    ]
    return Curves(Trainings(*columns), np.concatenate([part.losses for part in parts]), levels, networks)


def fit(driver: Driver, curves: Curves, degree: int = 2) -> ShapeForm:
    """Return the form whose parabola in ln N_eff, one at each level, leaves least of the ln loss.

    The parabolas are solved for within: the form has to order and to space networks of one level, no more.
    """
    groups = [np.flatnonzero(curves.levels == level) for level in np.unique(curves.levels)]
    logs = np.log(curves.losses)

    def residuals(weights: Floats) -> Floats:
        scores = _score(driver, weights, curves.trainings)
        left = []
        for group in groups:
            powers = np.vander((scores[group] - scores[group].mean()) / 2, degree + 1)
            solved = np.linalg.lstsq(powers, logs[group], rcond=None)[0]
            left.append(logs[group] - powers @ solved)
        return np.concatenate(left)

    found = least_squares(residuals, (0.6, 0.06, *driver.begin))
    return ShapeForm(driver, found.x)


CONSTANT: Final = "constant rate"
COOLED: Final = "after a 10 %"


def gemstones(file: Path, rate: str = CONSTANT) -> Curves:
    """Return the curves of the Gemstones at constant rate, or after it fell, at counts with equal ratios."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    names = sorted({row["name"] for row in rows})
    rows = [row for row in rows if row["note"].startswith(rate)]
    counts = sorted({row["tokens"] for row in rows})
    places = np.unique(np.round(np.geomspace(1, len(counts), COUNTS)).astype(int)) - 1
    chosen = {counts[place] for place in places}
    rows = [row for row in rows if row["tokens"] in chosen]
    architectures = {row["name"]: gemstone(row) for row in rows}
    tokens = [row["tokens"] for row in rows]
    return Curves(
        Trainings.of(
            [architectures[row["name"]] for row in rows], tokens, [t // GEMSTONES_STEP for t in tokens]
        ),
        np.array([row["loss"] for row in rows]),
        np.array(tokens, float),
        np.array([names.index(row["name"]) for row in rows]),
    )


def gemstone(row: dict[str, Any]) -> Architecture:
    """Return the llama of a row of the Gemstones."""
    space = make_space("llama", vocab=row["vocab"], tied=row["tied"])
    choices = {"depth": row["layers"], "head_size": row["head_dim"]}
    return space.read(choices | {name: row[name] for name in ("hidden", "heads", "kv_heads", "ffn")})


def covariance(driver: Driver, curves: Curves, draws: int = 400) -> Floats:
    """Return the covariance of the weights, by refits to networks that are drawn anew.

    Draws with a weight beyond 99 % of its own are left out: a few have hardly two depths of one width.
    """
    numbers, rng = np.unique(curves.networks), np.random.default_rng(0)
    drawn = [rng.choice(numbers, len(numbers)).tolist() for _ in range(draws)]
    weights = np.array(
        [fit(driver, curves.of_networks(some)).weights for some in drawn if len(set(some)) > 5]
    )
    low, high = np.percentile(weights, [0.5, 99.5], axis=0)
    return np.cov(weights[((weights >= low) & (weights <= high)).all(axis=1)].T)


def folds(networks: Floats, count: int = 11) -> list[tuple[Floats, Floats]]:
    """Return the places of the rows of all networks but some, and of these; each network is left out once."""
    numbers = np.unique(networks, return_inverse=True)[1] % count
    return [(np.flatnonzero(numbers != i), np.flatnonzero(numbers == i)) for i in np.unique(numbers)]


def unseen_error(driver: Driver, curves: Curves) -> float:
    """Return the root mean square of what the form leaves of the ln loss of networks that it did not see.

    The parabola of each level is that of the networks seen.
    """
    left = []
    for seen, hidden in folds(curves.networks):
        form = fit(driver, curves.at(seen))
        scores, logs = form.score(curves.trainings), np.log(curves.losses)
        for level in np.unique(curves.levels[hidden]):
            known = seen[curves.levels[seen] == level]
            new = hidden[curves.levels[hidden] == level]
            if len(known) < 4:
                continue
            middle = scores[known].mean()
            solved = np.linalg.lstsq(np.vander((scores[known] - middle) / 2, 3), logs[known], rcond=None)[0]
            left.append(logs[new] - np.vander((scores[new] - middle) / 2, 3) @ solved)
    return float(np.sqrt(np.mean(np.square(np.concatenate(left)))))
