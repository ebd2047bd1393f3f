"""The dictionary and Algorithm 1 against integrals, loops over matrices, and slow choices of entries."""

import numpy as np
import pytest
from catalogue import SETTINGS, batch_of, catalogue
from drawn import architectures
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from labelled import labelled
from portion import portion
from scipy.stats import kendalltau

from zerolm.architecture import Architecture
from zerolm.calibration import Pool
from zerolm.calibration.alpha import GRID, Alpha, algorithm1, mixed, parts
from zerolm.calibration.dictionary import (
    ENTRIES,
    MATRIX_SUMS,
    SUMMED,
    Dictionary,
    _semicircle,
    entry_values,
    fit_dictionary,
    spectral_sums,
)
from zerolm.scores import ClosedForm, ScoreBatch
from zerolm.solvers import search
from zerolm.solvers.problem import at_least
from zerolm.spaces import make_space


@given(st.floats(1e-3, 1.0))
def test_moments_of_the_marchenko_pastur_law(r: float) -> None:
    moments = [_semicircle(np.array([r]), lambda x, power=power: x**power)[0] for power in range(1, 5)]
    assert moments == pytest.approx([1, 1 + r, 1 + 3 * r + r**2, 1 + 6 * r + 6 * r**2 + r**3], rel=1e-9)
    mass = _semicircle(np.array([r]), np.ones_like)[0]
    assert mass == pytest.approx(1, abs=1e-9 if r < 0.9 else 4e-3)  # of a square half lies next to zero


@pytest.mark.parametrize(("rows", "cols"), [(200, 200), (120, 480), (600, 150), (64, 900)])
def test_spectral_sums_are_those_of_drawn_matrices(rows: int, cols: int) -> None:
    generator = np.random.default_rng(0)
    drawn = []
    for _ in range(4):
        singular = np.linalg.svd(generator.normal(size=(rows, cols)), compute_uv=False)
        share = singular / singular.sum()
        drawn.append(
            {
                "long": max(rows, cols), "short": (singular > 0).sum(),
                "stable_rank": (singular**2).sum() / singular[0] ** 2, "nuclear": singular.sum(),
                "effective_rank": np.exp(-(share * np.log(share)).sum()), "weights": (singular**2).sum(),
            }
        )  # fmt: skip
    expected = spectral_sums(np.array([[float(rows)]]), np.array([[float(cols)]]))
    assert set(expected) == set(MATRIX_SUMS)
    for name, value in expected.items():
        assert value.shape == (1, 1)
        tolerance = 0.04 if name == "stable_rank" else 0.01  # the largest value is slow to reach its edge
        assert value[0, 0] == pytest.approx(np.mean([one[name] for one in drawn]), rel=tolerance), name


def literal(architecture: Architecture) -> list[float]:
    """Every entry of an architecture by loops over its matrices."""
    found = []
    for entry in ENTRIES:
        total = 0.0
        for layer in architecture.layers:
            if entry.size == "width":
                total += layer.width
                continue
            for matrix in layer.matrices:
                rows, cols = float(matrix.rows // matrix.parts), float(matrix.cols)
                size = float(spectral_sums(np.array([rows]), np.array([cols]))[entry.size][0])
                weight = entry.alpha if matrix.role == "attention" else 1 - entry.alpha
                total += weight * matrix.parts * size
        found.append(total * architecture.depth**entry.power)
    return found


@settings(max_examples=portion(20))
@given(st.lists(architectures(max_depth=3), min_size=1, max_size=3))
def test_entries_are_their_definition(drawn: list[Architecture]) -> None:
    values = entry_values(ScoreBatch.of(drawn))
    assert values.shape == (len(ENTRIES), len(drawn)) == (61, len(drawn))
    assert np.allclose(values.T, [literal(one) for one in drawn], rtol=1e-9, atol=1e-9)


WEIGHTED = st.lists(
    st.tuples(st.sampled_from(ENTRIES), st.floats(1e-6, 1e6)),
    min_size=1,
    max_size=SUMMED,
    unique_by=lambda e: e[0],
)


@given(st.lists(architectures(), min_size=1, max_size=4), WEIGHTED)
def test_the_additive_score_is_the_weighted_sum(drawn: list[Architecture], chosen: list) -> None:
    entries, weights = zip(*chosen, strict=True)
    dictionary, batch = Dictionary(entries, weights, 0.0, 1.0), ScoreBatch.of(drawn)
    score = dictionary.score()
    assert isinstance(score, ClosedForm)
    assert score.of_many(batch) == pytest.approx(dictionary.of(entry_values(batch)), rel=1e-9)


def slowly(values: np.ndarray, result: np.ndarray) -> list[int]:
    """The places of the entries of best tau-b, by scipy, equal ones in order."""
    taus = [
        float(kendalltau(row, result).statistic) for row in np.round(values / values.max(axis=1)[:, None], 9)
    ]
    places = [i for i, tau in enumerate(taus) if not np.isnan(tau)]
    return sorted(places, key=lambda i: (-round(taus[i], 12), i))[:SUMMED]


@given(st.sampled_from(("gpt2", "llama", "flexibert", "pit")), st.integers(0, 10**6), st.integers(2, 12))
def test_the_entries_that_agree_best_are_kept(name: str, seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    listed = catalogue(name)
    values = Pool.of([listed.architectures[i] for i in rng.integers(len(listed.architectures), size=count)])
    result = rng.integers(0, 6, count).astype(float)  # with ties
    expected = slowly(values.entries, result)
    assume(expected)
    found = fit_dictionary(values.entries, result)
    assert [ENTRIES.index(entry) for entry in found.entries] == expected
    scaled = np.array(found.weights)[:, None] * values.entries[expected]
    assert scaled.std(axis=1) == pytest.approx(1.0)
    assert found.of(values.entries).mean() == pytest.approx(found.centre)


def test_architectures_that_do_not_differ_teach_nothing() -> None:
    with pytest.raises(ValueError, match="do not differ"):
        fit_dictionary(np.ones((61, 4)), np.arange(4.0))


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("method", ["exact", "exhaustive"])
def test_the_solvers_find_the_best_of_all(name: str, method: str) -> None:
    """A calibrated score with powers of the depth is solved exactly, within a budget."""
    labels, listed = labelled(name, 20), catalogue(name)
    score = fit_dictionary(labels.pool.entries, labels.result).score()
    scores, limit = listed.scores(score), listed.quantile("params", 0.6)
    within = listed.costs[:, 0] <= limit
    result = search(listed.space, score, budgets={"max_params": limit}, method=method, compare=False)
    assert result.certificate.optimal
    assert result.best[0].score == pytest.approx(scores[within].max(), rel=1e-9)
    assert result.plateau.ties.value == int(at_least(scores[within], scores[within].max()).sum())


def tau(a: np.ndarray, b: np.ndarray) -> float:
    return float(kendalltau(a, b).statistic)


def gpt2(*sizes: tuple[int, int, int]) -> ScoreBatch:
    names, rest = ("n_layer", "d_model", "d_inner"), {"n_head": 2, "d_embed": 128, "div_val": 1}
    return ScoreBatch.of(
        [make_space("gpt2").read({**dict(zip(names, size, strict=True)), **rest}) for size in sizes]
    )


BATCHES = st.builds(batch_of, st.sampled_from(list(SETTINGS)), st.integers(0, 10**6), st.integers(4, 15))


@given(BATCHES, st.integers(0, 10**6))
def test_algorithm1_is_the_published_loop(batch: ScoreBatch, seed: int) -> None:
    """As written: tau of every alpha, the mean of the two best; unless they are no neighbours."""
    result = np.random.default_rng(seed).normal(size=len(batch.depths))
    attention, ffn = parts(batch)
    taus = {a: tau(np.round(a * attention + (1 - a) * ffn, 9), result) for a in GRID}
    taus = {alpha: value for alpha, value in taus.items() if not np.isnan(value)}
    assume(len(taus) > 1)
    first, second = sorted(taus, key=lambda a: (-round(taus[a], 12), abs(a), -a))[:2]
    found = algorithm1(batch, result)
    assert found.literal == pytest.approx((first + second) / 2)
    if abs(first - second) < 0.15:
        assert (found.alpha, found.warnings) == (found.literal, ())
    else:
        assert found.alpha == first
        assert "no neighbours" in found.warnings[0]


def test_parts_that_cancel_are_ties() -> None:
    """1.5 x .1 is .5 x .3, but not in binary."""
    attention, ffn = np.array([0.1, 0.0, 0.1]), np.array([0.3, 0.0, 0.2])
    assert 1.5 * attention[0] - 0.5 * ffn[0] != 0
    assert mixed((attention, ffn), 1.5).tolist() == [0.0, 0.0, pytest.approx(0.05)]


def test_algorithm1_steps_aside_between_two_hills() -> None:
    """Two good alphas with bad ones between them: their mean would be one of those."""
    wide, deep, big = (2, 256, 512), (4, 128, 512), (2, 128, 4096)
    batch = gpt2(wide, deep, big, (8, 256, 2048), (3, 64, 300))
    found: list[Alpha] = []
    for seed in range(200):
        found.append(algorithm1(batch, np.random.default_rng(seed).permutation(5.0 + np.arange(5))))
    aside = [one for one in found if one.warnings]
    assert aside
    for one in aside:
        assert one.alpha in GRID
        assert abs(one.alpha - one.literal) > 0.05
        assert f"{one.literal:g}" in one.warnings[0]


def test_of_equal_alphas_none_punishes_attention() -> None:
    """Labels that any alpha ranks alike: a search with a negative one would shrink the attention."""
    assert algorithm1(gpt2((2, 128, 512), (3, 192, 768), (4, 256, 1024)), np.arange(3.0)).alpha == 0.05


def test_undefined_without_differences() -> None:
    alike = gpt2(*[(2, 128, 512)] * 4)
    with pytest.raises(ValueError, match="undefined"):
        algorithm1(alike, np.arange(4.0))
    with pytest.raises(ValueError, match="undefined"):
        algorithm1(batch_of("gpt2", 0, 5), np.ones(5))
