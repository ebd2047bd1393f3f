"""The noise ceiling on simulated benchmarks, whose noise-free quality is known."""

import numpy as np
import pytest

from zerolm.architecture import Floats, Ints
from zerolm.statistics import agreement, noise_ceiling
from zerolm.statistics.noise import NEIGHBOURS, _nearest


def benchmark(noise: float, seed: int, networks: int = 120) -> tuple[Floats, Floats, Ints]:
    """Results, noise-free quality and labels: networks of one to four runs, poor ones noisier."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(networks), rng.integers(1, 5, networks))
    quality = rng.normal(size=networks)[labels]
    scale = noise * np.where(quality < 0.0, 2.0, 1.0)
    return quality + scale * rng.standard_t(5, len(labels)), quality, labels


@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_the_ceiling_is_what_the_true_quality_reaches(noise: float) -> None:
    found, reached = [], []
    for seed in range(10):
        result, quality, labels = benchmark(noise, seed)
        ceiling = noise_ceiling(result, labels)
        known = agreement(quality, result)
        found.append((ceiling.tau, ceiling.rho))
        reached.append((known.tau, known.rho))
    assert np.mean(found, axis=0) == pytest.approx(np.mean(reached, axis=0), abs=0.03)


def test_without_noise_a_perfect_predictor_is_perfect() -> None:
    quality = np.random.default_rng(0).normal(size=30)
    labels = np.repeat(np.arange(30), 3)
    ceiling = noise_ceiling(quality[labels], labels)
    assert (ceiling.tau, ceiling.rho) == pytest.approx((1.0, 1.0))
    assert (ceiling.deviation, ceiling.networks, ceiling.runs) == (0.0, 30, 90)


def test_the_deviation_is_pooled_within_networks() -> None:
    ceiling = noise_ceiling(np.array([1.0, 3.0, 10.0, 14.0, 99.0]), np.array([7, 7, 5, 5, 1]))
    assert ceiling.deviation == pytest.approx(np.sqrt((2.0 + 8.0) / 2))
    assert (ceiling.networks, ceiling.runs) == (2, 4)


def test_there_is_no_ceiling_without_repeats_and_none_above_pure_noise() -> None:
    assert noise_ceiling(np.arange(5.0), np.arange(5)) is None
    ceiling = noise_ceiling(np.random.default_rng(0).normal(size=400), np.arange(400) % 20)
    assert abs(ceiling.tau) < 0.35


def test_runs_of_one_network_alone_leave_nothing_to_predict() -> None:
    ceiling = noise_ceiling(np.array([1.0, 2.0, 4.0]), np.zeros(3, np.int64))
    assert (ceiling.tau, ceiling.rho) == (0.0, 0.0)
    assert ceiling.deviation == pytest.approx(np.std([1.0, 2.0, 4.0], ddof=1))


def test_noise_is_that_of_the_nearest_runs_also_at_both_ends() -> None:
    places = np.random.default_rng(0).permutation(3 * NEIGHBOURS).astype(float)
    pools = np.sort(_nearest(np.sort(places), places, places), axis=1)
    assert pools.shape == (3 * NEIGHBOURS, NEIGHBOURS)
    assert (np.diff(pools, axis=1) == 1).all()
    assert pools[[0, -1]].ravel().tolist() == [*range(NEIGHBOURS), *range(2 * NEIGHBOURS, 3 * NEIGHBOURS)]
    assert (np.abs(pools.mean(axis=1) - np.arange(3 * NEIGHBOURS)) <= 0.5)[NEIGHBOURS:-NEIGHBOURS].all()
