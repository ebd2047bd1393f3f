"""Algorithm 1 against its literal twin, and its guards."""

from __future__ import annotations

import numpy as np
import pytest
from catalogue import SETTINGS, catalogue
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from zerolm.calibration.alpha import GRID, Alpha, algorithm1, mixed, parts
from zerolm.scores import ScoreBatch
from zerolm.spaces import make_space


def tau(a: np.ndarray, b: np.ndarray) -> float:
    return float(kendalltau(a, b).statistic)


def batch_of(name: str, seed: int, count: int) -> ScoreBatch:
    listed = catalogue(name).architectures
    return ScoreBatch.of([listed[i] for i in np.random.default_rng(seed).integers(len(listed), size=count)])


def gpt2(*sizes: tuple[int, int, int]) -> ScoreBatch:
    """Depth, width and FFN width of each."""
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


@pytest.mark.parametrize(("role", "high"), [("attention", True), ("ffn", False)])
def test_algorithm1_never_ranks_backwards(role: str, high: bool) -> None:
    """Results that follow one part alone: alpha leans to it, and the score agrees with the result."""
    batch = batch_of("flexibert", 3, 30)
    attention, ffn = parts(batch)
    result = attention if role == "attention" else ffn
    found = algorithm1(batch, result).alpha
    assert (found > 0.5) == high
    assert tau(found * attention + (1 - found) * ffn, result) > 0.85


def test_algorithm1_steps_aside_between_two_hills() -> None:
    """Two good alphas with bad ones between them: their mean would be one of those."""
    wide, deep, big = (2, 256, 512), (4, 128, 512), (2, 128, 4096)
    batch = gpt2(wide, deep, big, (8, 256, 2048), (3, 64, 300))
    found: list[Alpha] = []
    for seed in range(200):
        result = np.random.default_rng(seed).permutation(5.0 + np.arange(5))
        found.append(algorithm1(batch, result))
    aside = [one for one in found if one.warnings]
    assert aside
    for one in aside:
        assert one.alpha in GRID
        assert abs(one.alpha - one.literal) > 0.05
        assert f"{one.literal:g}" in one.warnings[0]


def test_of_equal_alphas_none_punishes_attention() -> None:
    """Labels that any alpha ranks alike: a search with a negative one would shrink the attention."""
    batch = gpt2((2, 128, 512), (3, 192, 768), (4, 256, 1024))
    assert algorithm1(batch, np.arange(3.0)).alpha == 0.05


def test_undefined_without_differences() -> None:
    alike = gpt2(*[(2, 128, 512)] * 4)
    with pytest.raises(ValueError, match="undefined"):
        algorithm1(alike, np.arange(4.0))
    with pytest.raises(ValueError, match="undefined"):
        algorithm1(batch_of("gpt2", 0, 5), np.ones(5))
