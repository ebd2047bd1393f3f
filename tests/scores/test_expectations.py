"""Closed forms are expectations: they are met by weights that are really drawn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from drawn import architectures
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolm.architecture import Architecture, Ends, Floats, Layer, Matrix
from zerolm.scores import make_score
from zerolm.scores.weights import capacity, capacity_svd, zerolm_of_weights

torch = pytest.importorskip("torch")

DEPTH = 3
LAYER = Layer(
    (
        Matrix("attention", 72, 24, parts=3),
        Matrix("attention", 24, 24, scaled=True),
        Matrix("ffn", 60, 24),
        Matrix("ffn", 24, 60, scaled=True),
    ),
    width=24,
    query_width=24,
    kv_width=24,
)
NETWORK = Architecture("drawn", {}, (LAYER,) * DEPTH, Ends(0))


def normal(matrix: Matrix, scaled: bool) -> Floats:
    deviation = 0.02 / (2 * DEPTH) ** 0.5 if matrix.scaled and scaled else 0.02
    return np.random.default_rng(torch.randint(2**31, ()).item()).normal(
        0, deviation, (matrix.rows, matrix.cols)
    )


def by_torch(initialise: Callable[[object], object]) -> Callable[[Matrix], Floats]:
    def draw(matrix: Matrix) -> Floats:
        weight = torch.empty(matrix.rows, matrix.cols)
        initialise(weight)
        return np.asarray(weight.numpy(), np.float64)

    return draw


INITIALISATIONS: dict[str, Callable[[Matrix], Floats]] = {
    "scaled": lambda matrix: normal(matrix, True),
    "normal": lambda matrix: normal(matrix, False),
    "xavier": by_torch(torch.nn.init.xavier_normal_),
    "kaiming": by_torch(torch.nn.init.kaiming_normal_),
    "orthogonal": by_torch(torch.nn.init.orthogonal_),
}


@pytest.mark.parametrize("init", INITIALISATIONS)
@pytest.mark.parametrize("alpha", [-0.5, 0.5, 1.1])
def test_zerolm_is_the_mean_over_drawn_weights(init: str, alpha: float) -> None:
    torch.manual_seed(0)
    draw, scores = INITIALISATIONS[init], []
    for _ in range(60):
        matrices = [matrix for layer in NETWORK.layers for matrix in layer.matrices]
        attention = [draw(matrix) for matrix in matrices if matrix.role == "attention"]
        ffn = [draw(matrix) for matrix in matrices if matrix.role == "ffn"]
        scores.append(zerolm_of_weights(attention, ffn, alpha))
    error = np.std(scores, ddof=1) / len(scores) ** 0.5
    expected = make_score("zerolm", alpha=alpha, init=init).of(NETWORK)
    assert np.mean(scores) == pytest.approx(expected, abs=4 * error + 1e-5 * abs(expected))
    assert error < 0.02 * abs(expected)


@pytest.mark.parametrize(("rows", "cols"), [(300, 300), (200, 500), (500, 200)])
def test_spectral_scores_are_met_by_one_large_matrix(rows: int, cols: int) -> None:
    """Sums over the spectrum fluctuate by about one, however large the matrix: one draw is enough."""
    deviation = (2 / (rows + cols)) ** 0.5
    weights = np.random.default_rng(1).normal(0, deviation, (rows, cols))
    values = np.linalg.svd(weights, compute_uv=False)
    network = Architecture("drawn", {}, (Layer((Matrix("ffn", rows, cols),), 1, 0, 0),), Ends(0))
    capacity_found = make_score("spectral_capacity").of(network)
    assert capacity_found == pytest.approx(np.log1p(values**2).sum(), abs=2.0)
    rank = (values**2).sum() / values[0] ** 2
    assert make_score("stable_rank").of(network) == pytest.approx(rank, rel=0.05)
    frobenius = make_score("log_complexity", init="xavier").of(network)
    assert frobenius == pytest.approx(np.log(np.linalg.norm(weights)), abs=0.01)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_capacity_by_norm_equals_capacity_by_singular_values(rows: int, cols: int, seed: int) -> None:
    weights = np.random.default_rng(seed).normal(size=(rows, cols))
    assert capacity(weights) == pytest.approx(capacity_svd(weights), rel=1e-10)
    assert capacity(weights.T) == pytest.approx(capacity(weights), rel=1e-12)
    assert capacity(3 * weights) == pytest.approx(9 * capacity(weights), rel=1e-12)


@given(st.integers(0, 2**32 - 1), st.floats(-2, 2))
def test_the_svd_reference_of_the_whole_score_agrees(seed: int, alpha: float) -> None:
    draw = np.random.default_rng(seed)
    attention = [draw.normal(size=(6, 4)), draw.normal(size=(4, 4))]
    ffn = [draw.normal(size=(8, 4))]
    fast = zerolm_of_weights(attention, ffn, alpha)
    assert zerolm_of_weights(attention, ffn, alpha, svd=True) == pytest.approx(fast, rel=1e-9, abs=1e-9)
    parts = sum(map(capacity, attention)), sum(map(capacity, ffn))
    assert fast == pytest.approx(alpha * parts[0] + (1 - alpha) * parts[1], rel=1e-12)


@settings(max_examples=30)
@given(architectures(max_depth=2))
def test_orthogonal_matrices_all_have_capacity_one(architecture: Architecture) -> None:
    """Of a semi-orthogonal matrix every singular value is 1, so zerolm only counts matrices."""
    count = sum(matrix.role == "ffn" for layer in architecture.layers for matrix in layer.matrices)
    assert make_score("zerolm", alpha=0.0, init="orthogonal").of(architecture) == pytest.approx(count)


@pytest.mark.parametrize("weights", [np.zeros(3), np.zeros((0, 4)), np.zeros((2, 2, 2)), 1.0])
def test_what_is_no_matrix_is_refused(weights: Floats) -> None:
    for measure in (capacity, capacity_svd):
        with pytest.raises(ValueError, match="must have rows and columns"):
            measure(weights)


@pytest.mark.parametrize("alpha", [float("nan"), float("inf"), -float("inf")])
def test_alpha_must_be_finite(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha must be a finite number"):
        zerolm_of_weights([np.eye(2)], [np.eye(2)], alpha)
