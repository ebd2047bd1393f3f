"""Labels of small spaces, made up from shapes and noise."""

import numpy as np
from catalogue import catalogue

from zerolm.architecture import Floats
from zerolm.calibration import Labels, Pool
from zerolm.scores import make_score

METHODS = ("stack", "dictionary", "gp", "blend", "algorithm1")


def pool_of(name: str, count: int, seed: int = 0) -> Pool:
    listed = catalogue(name).architectures
    chosen = np.random.default_rng(seed).choice(len(listed), count, replace=False)
    return Pool.of([listed[i] for i in chosen])


def losses(pool: Pool, noise: float = 0.02, seed: int = 0) -> Floats:
    """A power law in the body's parameters with noise, (n,)."""
    size = make_score("body_params").of_many(pool.batch)
    return 3.0 * (size / 1e6) ** -0.3 * np.exp(noise * np.random.default_rng(seed).normal(size=len(pool)))


def labelled(name: str, count: int, seed: int = 0, *, higher: bool = False, noise: float = 0.02) -> Labels:
    """``count`` labels, a loss or, where ``higher`` is better, its negative shifted."""
    pool = pool_of(name, count, seed)
    loss = losses(pool, noise, seed)
    space = catalogue(name).space
    settings = {name: value for name, value in space.settings.items() if not isinstance(value, list)}
    result = 10.0 - loss if higher else -loss
    return Labels(space.name, settings, "accuracy" if higher else "loss", higher, pool, result)
