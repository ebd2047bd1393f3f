"""Closed-form scores against their formulas, matrix by matrix, and against weights that are really drawn."""

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from drawn import architectures
from hypothesis import given
from hypothesis import strategies as st
from matrix_capacity import zerolm_of_weights
from scipy.integrate import quad

from zerolm.architecture import Architecture, Ends, Floats, Layer, Matrix
from zerolm.costs import CostModel
from zerolm.scores import ClosedForm, make_score, score_names, score_settings

INITS = ("scaled", "normal", "xavier", "kaiming", "orthogonal")


def every_closed_form() -> list[ClosedForm]:
    made = []
    for name in score_names():
        alpha: dict[str, Any] = {"alpha": -0.7} if "alpha" in [s.name for s in score_settings(name)] else {}
        for init in INITS if "init" in [s.name for s in score_settings(name)] else (None,):
            score = make_score(name, **alpha | ({"init": init} if init else {}))
            assert isinstance(score, ClosedForm)
            made.append(score)
    return made


FORMS = every_closed_form()


def variance(matrix: Matrix, depth: int, init: str) -> float:
    n, m = matrix.rows, matrix.cols
    deviation = 0.02 / math.sqrt(2 * depth) if matrix.scaled and init == "scaled" else 0.02
    return {
        "scaled": deviation**2, "normal": 0.02**2, "xavier": 2 / (n + m), "kaiming": 2 / m,
        "orthogonal": 1 / max(n, m),
    }[init]  # fmt: skip


def projections(architecture: Architecture) -> Iterator[tuple[int, int]]:
    """Rows and columns, with fused matrices taken apart."""
    for layer in architecture.layers:
        for matrix in layer.matrices:
            for _ in range(matrix.parts):
                yield matrix.rows // matrix.parts, matrix.cols


def geo(architecture: Architecture) -> float:
    total = 0.0
    for layer in architecture.layers:
        weights = {"attention": 0, "ffn": 0}
        for matrix in layer.matrices:
            weights[matrix.role] += matrix.rows * matrix.cols
        total += math.sqrt(weights["attention"] * weights["ffn"])
    return total


def saturating(architecture: Architecture) -> float:
    depth = len(architecture.layers)
    width = sum(layer.width for layer in architecture.layers) / depth
    return geo(architecture) * depth / (depth + math.log(width, 3))


def stable_rank(architecture: Architecture) -> float:
    return sum(n * m / (math.sqrt(n) + math.sqrt(m)) ** 2 for n, m in projections(architecture))


@pytest.mark.parametrize(
    ("name", "formula"), [("geo", geo), ("geo_saturating", saturating), ("stable_rank", stable_rank)]
)
@given(architecture=architectures())
def test_bare_scores(name: str, formula: Callable[[Architecture], float], architecture: Architecture) -> None:
    assert make_score(name).of(architecture) == pytest.approx(formula(architecture), rel=1e-12, abs=1e-12)


@given(architectures(), st.sampled_from(INITS))
def test_log_complexity_is_half_the_log_of_the_expected_square(architecture: Architecture, init: str) -> None:
    expected = sum(
        0.5 * math.log(matrix.rows * matrix.cols * variance(matrix, architecture.depth, init))
        for layer in architecture.layers
        for matrix in layer.matrices
    )
    found = make_score("log_complexity", init=init).of(architecture)
    assert found == pytest.approx(expected, rel=1e-11, abs=1e-11)


@given(architectures(), st.floats(-2, 2), st.sampled_from(INITS))
def test_zerolm_weighs_longer_sides_of_matrices(architecture: Architecture, alpha: float, init: str) -> None:
    expected = sum(
        (alpha if matrix.role == "attention" else 1 - alpha)
        * max(matrix.rows, matrix.cols)
        * variance(matrix, architecture.depth, init)
        for layer in architecture.layers
        for matrix in layer.matrices
    )
    found = make_score("zerolm", alpha=alpha, init=init).of(architecture)
    assert found == pytest.approx(expected, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("name", ["params", "body_params", "macs", "depth", "depth_width", "depth_width2"])
@given(architecture=architectures())
def test_counting_scores_are_exact_integers(name: str, architecture: Architecture) -> None:
    widths = [layer.width for layer in architecture.layers]
    expected = CostModel(context=77).of(architecture) | {
        "depth": len(widths),
        "depth_width": sum(widths),
        "depth_width2": sum(width**2 for width in widths),
    }
    assert make_score(name, CostModel(context=77)).of(architecture) == expected[name]


@given(st.integers(1, 200), st.integers(1, 4096))
def test_the_width_of_equal_layers_is_that_of_each(depth: int, width: int) -> None:
    layer = Layer((Matrix("attention", width, width),), width, width, width)
    architecture = Architecture("drawn", {}, (layer,) * depth, Ends(0))
    assert make_score("width").of(architecture) == pytest.approx(width, rel=1e-15, abs=0)


@given(architectures(max_depth=8), st.randoms(use_true_random=False))
def test_no_order_of_layers_changes_a_score(architecture: Architecture, order: random.Random) -> None:
    shuffled = list(architecture.layers)
    order.shuffle(shuffled)
    permuted = Architecture("drawn", {}, tuple(shuffled), architecture.ends)
    for score in FORMS:
        assert score.of(permuted) == score.of(architecture), score


@given(st.lists(architectures(max_depth=3), min_size=1, max_size=4))
def test_many_architectures_score_as_each_alone(drawn: list[Architecture]) -> None:
    for score in FORMS:
        alone = [score.of(architecture) for architecture in drawn]
        assert score.of_many(drawn) == pytest.approx(alone, rel=1e-12, abs=1e-14), score


def marchenko_pastur(g: float, b: float) -> float:
    """int ln(1 + g x) p_b(x) dx by quadrature over an angle, which removes the roots at both edges."""

    def integrand(angle: float) -> float:
        x = 1 + b + 2 * math.sqrt(b) * math.cos(angle)
        density = 2 * b * math.sin(angle) ** 2 / (math.pi * b * x) if x > 0 else 0.0
        return math.log1p(g * x) * density

    return float(quad(integrand, 0, math.pi, epsabs=1e-13, epsrel=1e-12, limit=200)[0])


@given(architectures(max_depth=2))
def test_spectral_capacity_integrates_every_projection(architecture: Architecture) -> None:
    expected = sum(
        min(n, m) * marchenko_pastur(2 * max(n, m) / (n + m), min(n, m) / max(n, m))
        for n, m in projections(architecture)
    )
    assert make_score("spectral_capacity").of(architecture) == pytest.approx(expected, rel=1e-8)


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
    weights = np.random.default_rng(1).normal(0, (2 / (rows + cols)) ** 0.5, (rows, cols))
    values = np.linalg.svd(weights, compute_uv=False)
    network = Architecture("drawn", {}, (Layer((Matrix("ffn", rows, cols),), 1, 0, 0),), Ends(0))
    capacity_found = make_score("spectral_capacity").of(network)
    assert capacity_found == pytest.approx(np.log1p(values**2).sum(), abs=2.0)
    rank = (values**2).sum() / values[0] ** 2
    assert make_score("stable_rank").of(network) == pytest.approx(rank, rel=0.05)
    frobenius = make_score("log_complexity", init="xavier").of(network)
    assert frobenius == pytest.approx(np.log(np.linalg.norm(weights)), abs=0.01)
