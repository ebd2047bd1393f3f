"""From a few trained architectures to a better ranking, judged on architectures it did not see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from zerolm.architecture import Architecture, Floats, Ints
from zerolm.calibration.alpha import Alpha, algorithm1, algorithm2
from zerolm.calibration.dictionary import Dictionary, fit_dictionary
from zerolm.calibration.pool import Pool
from zerolm.calibration.predictor import LEVEL, Prediction, Predictor
from zerolm.scores import ClosedForm, Score, WholeScore, make_score
from zerolm.statistics import kendall

METHODS: Final = ("auto", "dictionary", "gp", "blend", "algorithm1", "algorithm2")
LEAST: Final = {"auto": 5, "dictionary": 5, "gp": 8, "blend": 8, "algorithm1": 3, "algorithm2": 3}
"""Labels that each method needs."""
MOST: Final = 1000
LARGEST: Final = 1e100
"""Results whose squares are sure to be numbers."""
CHOOSING: Final = 12
"""Labels from which ``auto`` compares methods; below it takes the dictionary."""
FEW: Final = 100
"""Labels up to which chance matters more than time: splits and folds are repeated."""
SPLITS: Final = (20, 6)
"""Splits by which ``auto`` chooses, of few and of many labels."""
PREFERENCE: Final = 0.2
"""``auto`` leaves the blend for a method that is better by this share of a deviation between splits."""
FOLDS: Final = 5
REPEATS: Final = (4, 1)
"""How often the judge deals the folds, of few and of many labels."""


@dataclass(frozen=True, eq=False)
class Labels:
    """Architectures of one space (with its settings) with their results, (n,), signed: higher is better."""

    space: str
    settings: dict[str, Any]
    metric: str
    higher_is_better: bool
    pool: Pool
    result: Floats

    def __len__(self) -> int:
        return len(self.result)


@dataclass(frozen=True)
class Judgement:
    """How a calibration does on labels that were hidden from it, means over folds.

    ``tau`` is its tau-b, ``deviation`` that of a fold's, ``baselines`` those of uncalibrated scores on the
    same folds. ``coverage`` is the share of hidden results within their 90 % interval, ``width`` the
    intervals' mean width in the unit of the result, ``label_width`` that of the interval from the second
    smallest to the second largest label. None where nothing is defined.
    """

    folds: int
    tau: float | None
    deviation: float | None
    baselines: dict[str, float | None]
    coverage: float | None
    width: float | None
    label_width: float | None

    @property
    def not_beaten(self) -> list[str]:
        """The uncalibrated scores that rank the hidden labels at least as well."""
        if self.tau is None:
            return []
        return [name for name, tau in self.baselines.items() if tau is not None and tau >= self.tau]


@dataclass(frozen=True, eq=False)
class Calibration:
    """A ranking fitted to labels. ``method`` is never ``auto``: that chose one of the others."""

    labels: Labels
    method: str
    requested: str
    alpha: Alpha | None
    dictionary: Dictionary | None
    predictor: Predictor | None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is doubtful about the alpha, if one was chosen."""
        return self.alpha.warnings if self.alpha else ()

    def rank(self, pool: Pool) -> Floats:
        """Scores of architectures, (n,): those of ``score``.

        Of ``gp`` and ``blend`` they are expected results on the scale of the labels: 0 is the worst label
        and 1 the best, so that one percent means the same whatever the unit of the metric.
        """
        if self.alpha:
            return make_score("zerolm", alpha=self.alpha.alpha).of_many(pool.batch)
        assert self.dictionary
        if self.method == "dictionary":
            return self.dictionary.of(pool.entries)
        assert self.predictor
        result = self.labels.result
        values = self.predictor.blend(pool) if self.method == "blend" else self.predictor.predict(pool).mean
        return np.asarray((values - result.min()) / (result.max() - result.min()))

    def predict(self, pool: Pool) -> Prediction | None:
        """Expected results with 90 % intervals; None with fewer labels than a predictor needs."""
        return self.predictor.predict(pool) if self.predictor else None

    def score(self) -> Score:
        """The ranking as a score for ``search``: a closed form where it is a sum over layers."""
        if self.alpha:
            return make_score("zerolm", alpha=self.alpha.alpha)
        assert self.dictionary
        if self.method == "dictionary":
            return self.dictionary.score()

        def many(architectures: Sequence[Architecture]) -> Floats:
            return self.rank(Pool.of(architectures))

        closed = [self.dictionary.score(), *(make_score(name) for name in GUIDES)]
        guides = tuple(score for score in closed if isinstance(score, ClosedForm))
        return WholeScore(
            self.method, lambda a: float(many([a])[0]), "fitted to labels", many=many, guides=guides
        )


GUIDES: Final = ("geo", "geo_saturating", "stable_rank", "spectral_capacity", "body_params", "depth_width")
"""Closed forms whose best architectures are re-ranked by a calibration that is not additive."""


def calibrate(
    labels: Labels,
    method: str = "auto",
    *,
    seed: int = 0,
) -> Calibration:
    """Fit ``method`` to labels.

    ``algorithm1`` and ``algorithm2`` choose an alpha as ZeroLM does (the second without looking at the
    results), ``dictionary`` adds up the closed forms that agree best, ``gp`` is a Gaussian process,
    ``blend`` the mean of both; ``auto`` takes what does best on thirds of the labels hidden from it.
    Raises ``ValueError`` for an unknown method, too few labels, or labels that do not differ.
    """
    if method not in METHODS:
        raise ValueError(f"method {method!r} is not known; there are {', '.join(METHODS)}")
    if len(labels) < LEAST[method]:
        fits = [name for name in METHODS if LEAST[name] <= len(labels)]
        raise ValueError(
            f"method {method} needs at least {LEAST[method]} labelled architectures, but there are "
            f"{len(labels)}; " + (f"{', '.join(fits)} need no more" if fits else "no method needs so few")
        )
    if len(labels) > MOST:
        raise ValueError(f"there are {len(labels)} labelled architectures; at most {MOST} can be fitted")
    if not _varied(labels, np.arange(len(labels))):
        raise ValueError(f"all {len(labels)} labels have the same {labels.metric}: they rank nothing")
    largest = float(np.abs(labels.result).max())
    if largest > LARGEST:
        raise ValueError(f"{labels.metric} reaches {largest:g}: choose a unit with at most {LARGEST:g}")
    return _fit(labels, method, seed)


def _fit(labels: Labels, method: str, seed: int) -> Calibration:
    pool, result = labels.pool, labels.result
    chosen = _choose(labels, seed) if method == "auto" else method
    alpha: Alpha | None = None
    dictionary: Dictionary | None = None
    if chosen in ("algorithm1", "algorithm2"):
        alpha = algorithm1(pool.batch, result) if chosen == "algorithm1" else algorithm2(pool.batch)
    else:
        dictionary = fit_dictionary(pool.entries, result)
    predictor = None
    if len(labels) >= LEAST["gp"]:
        predictor = Predictor.fit(pool, result, dictionary or fit_dictionary(pool.entries, result))
    return Calibration(labels, chosen, method, alpha, dictionary, predictor)


def _choose(labels: Labels, seed: int) -> str:
    """The method of best mean tau-b on thirds of the labels that it did not see, the blend if in doubt."""
    if len(labels) < CHOOSING:
        return "dictionary"
    generator = np.random.default_rng(seed)
    taus: dict[str, list[float]] = {"blend": [], "gp": [], "dictionary": []}
    for _ in range(SPLITS[len(labels) > FEW]):
        order = generator.permutation(len(labels))
        hidden, seen = order[: len(labels) // 3], order[len(labels) // 3 :]
        if not _varied(labels, seen):
            continue
        try:
            fitted = _fit(part(labels, seen), "blend", seed)
        except ValueError:  # these labels alone do not tell the closed forms apart
            continue
        pool = labels.pool.take(hidden)
        ranks = [replace(fitted, method=name).rank(pool) for name in taus]
        found = kendall(np.array(ranks), labels.result[hidden])
        if not np.isnan(found).any():
            for name, tau in zip(taus, found, strict=True):
                taus[name].append(float(tau))
    best, lead = "blend", 0.0
    for name in ("dictionary", "gp"):
        gains = np.array(taus[name]) - np.array(taus["blend"])
        if len(gains) and gains.mean() > max(lead, PREFERENCE * gains.std()):
            best, lead = name, float(gains.mean())
    return best


def part(labels: Labels, indices: Ints) -> Labels:
    """The labels of these architectures alone."""
    return replace(labels, pool=labels.pool.take(indices), result=labels.result[indices])


def _varied(labels: Labels, indices: Ints) -> bool:
    return len(set(labels.result[indices].tolist())) > 1


def judge(
    labels: Labels,
    method: str = "auto",
    *,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Judgement:
    """Cross-validation of the whole of ``calibrate``, the choice of ``auto`` included.

    Five folds, dealt four times (once of more than a hundred labels); each is ranked and predicted by a
    calibration of the other four.
    """
    generator = np.random.default_rng(seed)
    names = ("geo", "body_params")
    taus: list[list[float]] = []
    inside: list[float] = []
    widths: list[float] = []
    label_widths: list[float] = []
    repeats = REPEATS[len(labels) > FEW]
    for repeat in range(repeats):
        order = generator.permutation(len(labels))
        for fold in range(FOLDS):
            progress(f"judging on hidden labels, {repeat * FOLDS + fold + 1} of {repeats * FOLDS}")
            hidden = order[fold::FOLDS]
            seen = np.setdiff1d(order, hidden)
            if len(seen) < LEAST[method] or len(hidden) < 2 or not _varied(labels, seen):
                continue
            try:
                fitted = _fit(part(labels, seen), method, seed)
            except ValueError:  # these labels alone do not tell what the method needs
                continue
            pool, result = labels.pool.take(hidden), labels.result[hidden]
            scores = [fitted.rank(pool), *(make_score(name).of_many(pool.batch) for name in names)]
            taus.append([float(tau) for tau in kendall(np.array(scores), result)])
            prediction = fitted.predict(pool)
            if prediction:
                inside += ((prediction.low <= result) & (result <= prediction.high)).tolist()
                widths.append(float(np.mean(prediction.high - prediction.low)))
                ordered = np.sort(labels.result[seen])
                label_widths.append(float(ordered[-2] - ordered[1]))
    columns = np.array(taus).reshape(len(taus), 1 + len(names))
    means = [_mean(column[~np.isnan(column)]) for column in columns.T]
    own = columns[:, 0][~np.isnan(columns[:, 0])]
    return Judgement(
        len(taus),
        means[0],
        float(own.std()) if len(own) else None,
        dict(zip(names, means[1:], strict=True)),
        _mean(np.array(inside)),
        _mean(np.array(widths)),
        _mean(np.array(label_widths)),
    )


def _mean(values: Floats) -> float | None:
    return float(np.mean(values)) if len(values) else None


__all__ = ["LEVEL", "METHODS", "Calibration", "Judgement", "Labels", "calibrate", "judge", "part"]
