"""Predictions with intervals: their scale, what must not change them, what lies beyond the labels."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labelled import losses, pool_of
from portion import portion
from refusals import Zerolm

from zerolm.architecture import Architecture, Floats
from zerolm.calibration import Labels, Pool, Prediction
from zerolm.calibration.calibrate import FIXED, Predictor
from zerolm.calibration.dictionary import fit_dictionary
from zerolm.calibration.expectation import beyond, ratio_columns
from zerolm.calibration.rivals import SETS, Rivals
from zerolm.scores import ScoreBatch, make_score
from zerolm.spaces import make_space

SPACES = st.sampled_from(("gpt2", "llama per layer", "flexibert", "autoformer", "pit"))
SEEDS = st.integers(0, 10**6)


def fitted(pool: Pool, result: Floats, weights: Sequence[float] = FIXED["gp"]) -> Predictor:
    rivals = Rivals.fit(pool, result, fit_dictionary(pool.entries, result))
    return Predictor.of(rivals, np.array(weights))


def half(pool: Pool) -> tuple[Pool, Pool]:
    middle = len(pool) // 2
    return pool.take(range(middle)), pool.take(range(middle, len(pool)))


def ordered(found: Prediction) -> bool:
    return bool((found.low <= found.mean).all() and (found.mean <= found.high).all())


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_results_that_spread_exponentially_are_fitted_on_a_logarithmic_scale(sign: float) -> None:
    seen, hidden = half(pool_of("gpt2", 80))
    growth = np.log(make_score("body_params").of_many(seen.batch))
    noise = np.random.default_rng(0).normal(size=len(seen))
    found = fitted(seen, sign * np.exp(3 * growth - 30 + 0.3 * noise))
    assert found.rivals.scale.logarithmic
    predicted = found.predict(hidden)
    assert ordered(predicted)
    for values in (predicted.mean, predicted.low, predicted.high, found.mean(hidden)):
        assert (np.sign(values) == sign).all()  # never beyond zero


@pytest.mark.parametrize("name", ["positive", "of both signs"])
def test_others_are_not(name: str) -> None:
    pool = pool_of("gpt2", 40)
    growth = np.log(make_score("body_params").of_many(pool.batch))
    line = (growth - growth.min()) / np.ptp(growth) * 9 + 1
    line += 0.1 * np.random.default_rng(0).normal(size=len(pool))
    assert not fitted(pool, line if name == "positive" else line - 5).rivals.scale.logarithmic


def test_the_scale_is_chosen_by_the_density_of_the_results() -> None:
    """So it does not depend on the unit: the logarithm's evidence is one of the results, not of logs."""
    pool = pool_of("gpt2", 30)
    for result in (losses(pool), 1 + losses(pool, 0.3)):
        chosen = {fitted(pool, unit * result).rivals.scale.logarithmic for unit in (1e-9, 1.0, 1e9)}
        assert len(chosen) == 1


@settings(max_examples=portion(15))
@given(SPACES, SEEDS, st.floats(1e-6, 1e6), st.booleans())
def test_another_unit_scales_the_predictions(name: str, seed: int, unit: float, negative: bool) -> None:
    seen, hidden = half(pool_of(name, 40, seed))
    result = losses(seen, 0.1, seed) * (-1 if negative else 1)
    one, other = fitted(seen, result).predict(hidden), fitted(seen, unit * result).predict(hidden)
    assert ordered(one)
    for field in ("mean", "low", "high"):
        assert getattr(other, field) == pytest.approx(unit * getattr(one, field), rel=1e-5)


@settings(max_examples=portion(15))
@given(SPACES, SEEDS, st.floats(0.5, 1e3), st.floats(-1e3, 1e3))
def test_results_of_both_signs_may_be_shifted(name: str, seed: int, scale: float, shift: float) -> None:
    seen, hidden = half(pool_of(name, 40, seed))
    result = losses(seen, 0.1, seed)
    result = (result - result.mean()) / result.std()
    moved = scale * result + shift
    if moved.min() > 0 or moved.max() < 0:  # a logarithm might be better
        moved -= moved.mean()
        shift = float((moved - scale * result).mean())
    one, other = fitted(seen, result).predict(hidden), fitted(seen, moved).predict(hidden)
    for field in ("mean", "low", "high"):
        assert getattr(other, field) == pytest.approx(
            scale * getattr(one, field) + shift, rel=1e-4, abs=1e-4 * scale
        )


@pytest.mark.parametrize("noise", [0.01, 0.1])
@pytest.mark.parametrize("name", ["gpt2", "flexibert"])
def test_intervals_cover_what_they_claim(name: str, noise: float) -> None:
    """And are not much wider than those of somebody who knows the law behind the results."""
    covered, width = [], []
    for seed in range(6):
        pool = pool_of(name, 250, seed)
        seen, hidden = pool.take(range(50)), pool.take(range(50, 250))
        result = losses(pool, noise, seed)
        found = fitted(seen, result[:50]).predict(hidden)
        assert ordered(found)
        covered.append(np.mean((found.low <= result[50:]) & (result[50:] <= found.high)))
        width.append(np.mean(found.high - found.low) / np.mean(2 * 1.645 * noise * losses(hidden, 0.0)))
    assert 0.85 < np.mean(covered) < 0.97
    assert 0.9 < np.mean(width) < 1.4


def test_shares_are_probabilities_and_follow_the_cause() -> None:
    pool = pool_of("gpt2", 40)
    heads = np.array([float(np.mean(a.choices["n_head"])) for a in pool.architectures])
    shares = fitted(pool, heads).shares()
    assert list(shares) == list(SETS)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["shapes and choices"] > 0.99  # no shape shows the number of heads


def test_what_the_labels_lack_is_ignored() -> None:
    """A choice that none of the labels makes, and one that all make, tell nothing."""
    everything = pool_of("flexibert", 200)
    first = [a.choices["encoder_layers"][0]["operation_type"] for a in everything.architectures]
    plain = [i for i, kind in enumerate(first) if kind == "SA" and everything.architectures[i].depth == 1]
    seen, others = everything.take(plain[:12]), everything.take([i for i, k in enumerate(first) if k != "SA"])
    found = fitted(seen, losses(seen)).predict(others)
    assert ordered(found)
    assert np.isfinite([found.mean, found.low, found.high]).all()


SPACE = make_space("llama", vocab=1000)


def llama(depth: int, heads: int, times: float = 4, per_kv: int = 2) -> Architecture:
    hidden = 64 * heads
    return SPACE.read({"depth": depth, "hidden": hidden, "head_size": 64, "heads": heads,
                       "kv_heads": heads // per_kv, "ffn": int(times * hidden)})  # fmt: skip


def labels(architectures: list[Architecture]) -> Labels:
    result = np.linspace(0, 1, len(architectures))
    return Labels("llama", SPACE.settings, "loss", False, Pool.of(architectures), result)


def leaving(known: list[Architecture], one: Architecture) -> set[str]:
    return {name for name, outside in beyond(labels(known), Pool.of([one])).items() if outside[0]}


ALIKE = [llama(depth, heads) for depth in (4, 8, 16) for heads in (4, 8, 16)]


def test_ratios_are_those_of_the_shape() -> None:
    columns = ratio_columns(ScoreBatch.of([llama(8, 8), llama(4, 16, times=2, per_kv=8)]))
    assert columns["hidden / depth"].tolist() == [64, 256]
    assert columns["heads / kv heads"].tolist() == [2, 8]
    attention = [2 + 2 / 2, 2 + 2 / 8]  # over hidden^2: q and o, k and v
    assert columns["ffn / attention"] == pytest.approx([12 / attention[0], 6 / attention[1]])


def test_a_label_is_never_beyond_itself() -> None:
    for one in ALIKE:
        assert leaving(ALIKE, one) == set()


@pytest.mark.parametrize(
    ("one", "ratio"), [(llama(8, 8, times=3), "ffn / attention"), (llama(8, 8, per_kv=4), "heads / kv heads")]
)
def test_a_ratio_that_no_label_has_is_beyond_them(one: Architecture, ratio: str) -> None:
    """Though depth, width and every size of it lie between those of the labels."""
    assert ratio in leaving(ALIKE, one)
    assert leaving(ALIKE, one) <= {"ffn / attention", "heads / kv heads"}


def test_combinations_are_beyond_where_each_size_is_not() -> None:
    """The deepest of the widest and of the narrowest were not trained: their aspect is new."""
    diagonal = [llama(4, 4), llama(8, 8), llama(16, 16)]
    assert "hidden / depth" in leaving(diagonal, llama(16, 4))
    assert "hidden / depth" in leaving(diagonal, llama(4, 16))


def test_labels_may_be_named(zerolm: Zerolm) -> None:
    small = (
        "--hidden", "64,96", "--depth", "2:4", "--head-size", "16", "--ffn", "64:256:64", "--vocab", "1024",
    )  # fmt: skip
    ran = zerolm("search", "llama", "--labels", "llama_small", "--hidden-per-depth", "1:1000", *small)
    assert ran.status == 0, ran.err
    zerolm("search", "llama", "--labels", "llama_smal", *small).refused("did you mean 'llama_small'")
