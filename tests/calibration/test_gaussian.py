"""Gaussian processes against dense linear algebra, and what must not change them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.architecture import Floats
from zerolm.calibration.gaussian import KERNELS, NOISE, GaussianProcess, _covariance, _kernel, _Standardised

SEEDS = st.integers(0, 10**6)


def drawn(seed: int, n: int = 9, p: int = 3) -> tuple[Floats, Floats, Floats]:
    """Features of labels (n, p) and of others (4, p), and results (n,)."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(n + 4, p)) * generator.uniform(0.1, 10, p)
    result = features @ generator.normal(size=p) + generator.normal(size=n + 4)
    return features[:n], features[n:], result[:n]


def literal_covariance(a: Floats, b: Floats, length: float, linear: float) -> Floats:
    return np.array(
        [
            [
                1 + linear * sum(x * y) + (1 - linear) * np.exp(-sum((x - y) ** 2) / (2 * length**2))
                for y in b
            ]
            for x in a
        ]
    )  # fmt: skip


@given(SEEDS, st.sampled_from(KERNELS))
def test_evidence_and_scale_of_one_kernel(seed: int, kernel: tuple[float, float]) -> None:
    """The scale is the most likely one: the evidence is the density there, and lower beside it."""
    features, _, target = drawn(seed)
    places = _Standardised.of(features).values
    found = _kernel(0, places, target, *kernel)
    covariance = literal_covariance(places, places, *kernel)
    assert _covariance(places, places, *kernel) == pytest.approx(covariance)
    for i, noise in enumerate(NOISE):
        dense = covariance + noise * np.eye(len(target))

        def density(scale: float, dense: Floats = dense) -> float:
            fit = target @ np.linalg.solve(dense, target) / scale
            return float(-0.5 * (fit + np.linalg.slogdet(2 * np.pi * scale * dense)[1]))

        assert found.evidence[i] == pytest.approx(density(found.scale[i]), rel=1e-7, abs=1e-7)
        assert found.evidence[i] >= max(density(found.scale[i] * c) for c in (0.9, 1.1))


def twin(process: GaussianProcess, sets: list[Floats], new: list[Floats]) -> tuple[Floats, Floats]:
    """The posterior by dense inverses, kernel by kernel, as a mixture."""
    means, seconds = 0.0, 0.0
    for kernel, weights in process.kernels:
        mean_, spread_ = sets[kernel.features].mean(0), sets[kernel.features].std(0)
        varied = spread_ > 1e-9
        divisor = np.where(varied, spread_, np.inf) * np.sqrt(max(varied.sum(), 1))
        known, asked = ((each[kernel.features] - mean_) / divisor for each in (sets, new))
        dense, across, prior = (
            literal_covariance(a, b, kernel.length, kernel.linear)
            for a, b in ((known, known), (asked, known), (asked, asked))
        )
        for weight, noise, scale in zip(weights, NOISE, kernel.scale, strict=True):
            inverse = np.linalg.inv(dense + noise * np.eye(len(known)))
            mean = across @ inverse @ process.target
            variance = scale * (np.diag(prior) + noise - np.sum((across @ inverse) * across, axis=1))
            means, seconds = means + weight * mean, seconds + weight * (variance + mean**2)
    return process.level + process.spread * means, process.spread * np.sqrt(seconds - means**2)


@given(SEEDS, st.integers(1, 4))
def test_the_posterior_is_that_of_dense_algebra(seed: int, p: int) -> None:
    features, new, result = drawn(seed, p=p)
    sets, asked = [features, features[:, :1]], [new, new[:, :1]]
    process = GaussianProcess.fit(sets, result)
    mean, deviation = process.predict(asked)
    expected_mean, expected_deviation = twin(process, sets, asked)
    assert mean == pytest.approx(expected_mean, rel=1e-6, abs=1e-6)
    assert deviation == pytest.approx(expected_deviation, rel=1e-5, abs=1e-6)


@given(SEEDS)
def test_left_out_is_refitting_without_the_point(seed: int) -> None:
    """With the same kernels, weights and scales: each label from the others alone."""
    features, _, result = drawn(seed, n=8)
    process = GaussianProcess.fit([features], result)
    places = process.sets[0].values
    mean, deviation = process.left_out()
    for i in range(len(result)):
        others = np.arange(len(result)) != i
        first, second = 0.0, 0.0
        for kernel, weights in process.kernels:
            whole = literal_covariance(places, places, kernel.length, kernel.linear)
            for weight, noise, scale in zip(weights, NOISE, kernel.scale, strict=True):
                inverse = np.linalg.inv(whole[np.ix_(others, others)] + noise * np.eye(others.sum()))
                expected = whole[i, others] @ inverse @ process.target[others]
                variance = scale * (whole[i, i] + noise - whole[i, others] @ inverse @ whole[i, others])
                first, second = first + weight * expected, second + weight * (variance + expected**2)
        assert mean[i] == pytest.approx(process.level + process.spread * first, rel=1e-6, abs=1e-6)
        assert deviation[i] == pytest.approx(process.spread * np.sqrt(second - first**2), rel=1e-5)


@given(SEEDS)
def test_weights_are_probabilities(seed: int) -> None:
    features, _, result = drawn(seed)
    process = GaussianProcess.fit([features, features[:, :1], features**2], result)
    weights = np.concatenate([weight for _, weight in process.kernels])
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1.0)
    assert process.shares().sum() == pytest.approx(1.0)
    assert len(process.shares()) == 3


@given(SEEDS, st.floats(-1e4, 1e4), st.floats(1e-4, 1e4))
def test_results_may_be_shifted_and_scaled(seed: int, shift: float, scale: float) -> None:
    features, new, result = drawn(seed)
    one, other = (GaussianProcess.fit([features], y) for y in (result, shift + scale * result))
    for found, moved in ((one.predict([new]), other.predict([new])), (one.left_out(), other.left_out())):
        size = abs(shift) + scale
        assert moved[0] == pytest.approx(shift + scale * found[0], rel=1e-5, abs=1e-6 * size)
        assert moved[1] == pytest.approx(scale * found[1], rel=1e-4, abs=1e-6 * size)
    # A density of scaled results is as much lower.
    assert other.log_evidence == pytest.approx(one.log_evidence - len(result) * np.log(scale), abs=1e-4)


@given(
    SEEDS,
    st.lists(st.tuples(st.floats(-100, 100), st.floats(0.1, 10), st.booleans()), min_size=3, max_size=3),
)
def test_features_may_be_moved_mirrored_constant(seed: int, moves: list[tuple[float, float, bool]]) -> None:
    features, new, result = drawn(seed)
    shift, scale, mirrored = (np.array(column) for column in zip(*moves, strict=True))
    scale = np.where(mirrored, -scale, scale)
    expected = GaussianProcess.fit([features], result).predict([new])

    def changed(values: Floats) -> Floats:
        return np.hstack([shift + scale * values, np.full((len(values), 2), 7.7)])

    found = GaussianProcess.fit([changed(features)], result).predict([changed(new)])
    assert found[0] == pytest.approx(expected[0], rel=1e-5, abs=1e-5)
    assert found[1] == pytest.approx(expected[1], rel=1e-4)


def test_a_constant_among_the_labels_says_nothing_elsewhere() -> None:
    features, new, result = drawn(0)
    constant = [np.hstack([values, np.full((len(values), 1), 3.3)]) for values in (features, new)]
    other = np.hstack([new, np.full((len(new), 1), 1e6)])
    process = GaussianProcess.fit([constant[0]], result)
    assert process.predict([constant[1]])[0].tolist() == process.predict([other])[0].tolist()


def test_features_that_are_all_constant_leave_the_mean() -> None:
    result = np.array([1.0, 2.0, 4.0, 9.0])
    mean, deviation = GaussianProcess.fit([np.ones((4, 2))], result).predict([np.zeros((2, 2))])
    assert mean == pytest.approx([result.mean()] * 2)
    assert (deviation > result.std() * 0.5).all()
