"""Gaussian processes for few labels, averaged by their evidence.

No hyperparameter is fitted to twenty points: a small grid of kernels and noise levels, and several sets of
features, are averaged by their marginal likelihood, each in closed form from one eigendecomposition
(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, sections 2.3, 5.4 and 8.3.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from zerolm.architecture import Floats

LENGTHS: Final = (0.5, 1.0, 2.0)
"""Length scales of the RBF kernel, in root-mean-square standardised distance."""
LINEAR: Final = (0.0, 0.5, 1.0)
"""Shares of the linear kernel; the rest is RBF."""
NOISE: Final = tuple(float(value) for value in np.geomspace(1e-3, 1.0, 9))
"""Variances of the noise, relative to the kernel's."""
KERNELS: Final = (*((length, share) for length in LENGTHS for share in LINEAR if share < 1.0), (1.0, 1.0))
LINE: Final = ((1.0, 1.0),)
"""A set of one feature is a score already: it is bent by no kernel, and so ranks alike beyond the labels."""
NEGLIGIBLE: Final = 1e-3


@dataclass(frozen=True, eq=False)
class _Kernel:
    """One kernel on one set of features, with all noise levels: K = V diag(w) V^T, u = V^T t."""

    features: int
    length: float
    linear: float
    vectors: Floats
    values: Floats
    rotated: Floats
    evidence: Floats
    scale: Floats


@dataclass(frozen=True, eq=False)
class _Standardised:
    """Features (n, p) of the labels with zero mean and unit mean square row."""

    mean: Floats
    spread: Floats
    values: Floats

    @classmethod
    def of(cls, features: Floats) -> _Standardised:
        mean, spread = features.mean(axis=0), features.std(axis=0)
        spread = np.where(spread > 1e-12 * np.maximum(np.abs(mean), 1.0), spread, np.inf)
        spread = spread * np.sqrt(max(1, int(np.isfinite(spread).sum())))
        return cls(mean, spread, (features - mean) / spread)

    def __call__(self, features: Floats) -> Floats:
        return (features - self.mean) / self.spread


def _covariance(a: Floats, b: Floats, length: float, linear: float) -> Floats:
    """linear a b^T + (1 - linear) exp(-|a - b|^2 / 2 length^2) + 1, (n, m); the 1 leaves the level free."""
    inner = a @ b.T
    squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None] - 2.0 * inner
    smooth = np.exp(-np.maximum(squares, 0.0) / (2.0 * length**2))
    return np.asarray(linear * inner + (1.0 - linear) * smooth + 1.0)


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """The posterior of results given features, averaged over kernels, noise levels and feature sets."""

    level: float
    spread: float
    target: Floats
    sets: tuple[_Standardised, ...]
    kernels: tuple[tuple[_Kernel, Floats], ...]
    log_evidence: float

    @classmethod
    def fit(cls, feature_sets: Sequence[Floats], result: Floats) -> GaussianProcess:
        """From sets of features, (n, p) each, of the same n labels with ``result`` (n,), which vary.

        The scale of a kernel is its most likely one. Priors are equal for noise levels within a kernel, for
        the kernels of a set, and for the sets.
        """
        level, spread = float(result.mean()), float(result.std())
        target = (result - level) / spread
        sets = tuple(_Standardised.of(features) for features in feature_sets)
        grids = [LINE if standard.values.shape[1] == 1 else KERNELS for standard in sets]
        kernels = [
            _kernel(place, standard.values, target, length, linear)
            for place, (standard, grid) in enumerate(zip(sets, grids, strict=True))
            for length, linear in grid
        ]
        top = max(float(kernel.evidence.max()) for kernel in kernels)
        weights = [np.exp(kernel.evidence - top) / len(grids[kernel.features]) for kernel in kernels]
        total = float(sum(weight.sum() for weight in weights))
        weighed = tuple(
            (kernel, np.where(weight > NEGLIGIBLE * total, weight, 0.0) / total)
            for kernel, weight in zip(kernels, weights, strict=True)
            if weight.max() > NEGLIGIBLE * total
        )
        share = sum(float(weight.sum()) for _, weight in weighed)
        weighed = tuple((kernel, weight / share) for kernel, weight in weighed)
        count = len(sets) * len(NOISE)
        evidence = top + float(np.log(total / count)) - len(target) * float(np.log(spread))
        return cls(level, spread, target, sets, weighed, evidence)

    def shares(self) -> Floats:
        """The posterior probability of each set of features, (s,)."""
        shares = np.zeros(len(self.sets))
        for kernel, weight in self.kernels:
            shares[kernel.features] += float(weight.sum())
        return shares

    def predict(self, feature_sets: Sequence[Floats]) -> tuple[Floats, Floats]:
        """Mean and standard deviation of a result, noise included, of m architectures, (m,) each."""
        inputs = [standard(features) for standard, features in zip(self.sets, feature_sets, strict=True)]
        first, second = np.zeros(len(inputs[0])), np.zeros(len(inputs[0]))
        for kernel, weight in self.kernels:
            inputs_seen, new = self.sets[kernel.features].values, inputs[kernel.features]
            across = _covariance(new, inputs_seen, kernel.length, kernel.linear) @ kernel.vectors
            prior = kernel.linear * (new * new).sum(axis=1) + (1.0 - kernel.linear) + 1.0
            for i in np.flatnonzero(weight):
                shrunk = across / (kernel.values + NOISE[i])
                mean = shrunk @ kernel.rotated
                variance = kernel.scale[i] * (prior - (across * shrunk).sum(axis=1) + NOISE[i])
                first += weight[i] * mean
                second += weight[i] * (np.maximum(variance, 0.0) + mean * mean)
        return self._unscaled(first, second)

    def left_out(self) -> tuple[Floats, Floats]:
        """Mean and deviation at each label given the others, (n,) each (equation 5.12)."""
        first, second = np.zeros(len(self.target)), np.zeros(len(self.target))
        for kernel, weight in self.kernels:
            for i in np.flatnonzero(weight):
                shrunk = 1.0 / (kernel.values + NOISE[i])
                precision = (kernel.vectors**2) @ shrunk
                mean = self.target - kernel.vectors @ (shrunk * kernel.rotated) / precision
                first += weight[i] * mean
                second += weight[i] * (kernel.scale[i] / precision + mean * mean)
        return self._unscaled(first, second)

    def _unscaled(self, first: Floats, second: Floats) -> tuple[Floats, Floats]:
        deviation = np.sqrt(np.maximum(second - first * first, 1e-12))
        return self.level + self.spread * first, self.spread * deviation


def _kernel(place: int, features: Floats, target: Floats, length: float, linear: float) -> _Kernel:
    values, vectors = np.linalg.eigh(_covariance(features, features, length, linear))
    values, rotated = np.maximum(values, 0.0), vectors.T @ target
    spectrum = values[:, None] + np.array(NOISE)
    scale = (rotated[:, None] ** 2 / spectrum).mean(axis=0)
    evidence = -0.5 * (len(target) * (np.log(2 * np.pi * scale) + 1.0) + np.log(spectrum).sum(axis=0))
    return _Kernel(place, length, linear, vectors, values, rotated, evidence, scale)
