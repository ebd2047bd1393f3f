"""Growth: principal components of known ranks, K, order and limits, the mean of paths; diversity."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_supernets import normal

from zerolm.lab.supernets.learner import diversity, grown, growths, mean_params, pca_count

SEEDS = st.integers(0, 10**6)


@given(SEEDS, st.floats(0.5, 0.999), st.integers(2, 40))
def test_components_are_those_of_numpy(seed: int, eta: float, n: int) -> None:
    features = normal(seed, n, 9) * torch.arange(1.0, 10.0, dtype=torch.float64) ** 2 + 3.0
    variances = np.sort(np.linalg.eigvalsh(np.cov(features.numpy().T)))[::-1].clip(0)
    shares = variances.cumsum() / variances.sum()
    assert pca_count(features, eta) == next(k for k, share in enumerate(shares, 1) if share > eta)


def test_the_share_must_be_exceeded() -> None:
    """Two equal components hold a half each, and a half does not exceed a half."""
    features = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert pca_count(features, 0.5) == 2
    assert pca_count(features, 0.49) == 1


def test_a_training_that_has_diverged_has_no_components() -> None:
    with pytest.raises(ValueError, match="not finite"):
        pca_count(torch.tensor([[1.0], [float("nan")]]), 0.9)


def test_growths_of_the_paper() -> None:
    assert growths(12, 6) == 21
    assert growths(3, 6, average=3, epochs=60) == 0


WIDTHS = st.lists(st.lists(st.integers(1, 6), min_size=3, max_size=3), min_size=1, max_size=4)


@given(WIDTHS, SEEDS, st.integers(-1, 20))
def test_the_best_scores_that_can_grow_do(units: list[list[int]], seed: int, count: int) -> None:
    """Beside the loop of the specification."""
    widths = np.array(units) * 8
    scores = np.random.default_rng(seed).integers(0, 4, widths.shape).astype(float)
    twin, left = widths.copy(), count
    for place in sorted(product(*map(range, widths.shape)), key=lambda place: -scores[place]):
        if left > 0 and twin[place] + 8 <= 48:
            twin[place] += 8
            left -= 1
    before = widths.copy()
    assert (grown(widths, scores, 8, 48, count) == twin).all()
    assert (widths == before).all()


@given(st.lists(st.lists(st.integers(0, 10**6), min_size=2, max_size=2), min_size=1, max_size=5))
def test_the_mean_is_that_of_every_path(rows: list[list[int]]) -> None:
    params = np.array(rows)
    paths = [sum(path) for path in product(*rows)]
    assert mean_params(params, 7) == pytest.approx(7 + float(np.mean(paths)), rel=1e-12)


@given(st.integers(0, 10**6), st.floats(0.01, 100))
def test_equals_are_1_opposites_less_and_scale_does_not_count(seed: int, scale: float) -> None:
    output = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(seed))
    assert diversity([output, output * scale]) == pytest.approx(1)
    assert diversity([output, -output]) == pytest.approx(-1)
    assert diversity([output, output, -output]) == pytest.approx(-1 / 3)
