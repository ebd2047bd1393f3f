"""Closed forms are expectations: they are met by weights that are really drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from matrix_capacity import zerolm_of_weights

from zerolm.architecture import Architecture, Ends, Floats, Layer, Matrix
from zerolm.scores import make_score

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


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small matrices: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
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
