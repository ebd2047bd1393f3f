"""Regret and overlap against every way to break ties, one by one, and against published measurements."""

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolm.architecture import Architecture, Floats, Ints
from zerolm.groundtruth.reader import locate, quality, read, views
from zerolm.scores import ScoreBatch, make_score
from zerolm.statistics import budget_ladder, noise_ceiling, random_regret, regret, regret_curve, top_overlap

ROWS = st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=6)
K = st.integers(1, 7)


def orders(values: Floats) -> list[list[int]]:
    """Every order of the values, highest first, that breaks their ties somehow."""
    indices = range(len(values))
    return [list(p) for p in permutations(indices) if all(np.diff(values[list(p)]) <= 0)]


@given(ROWS, K)
def test_regret_is_the_mean_over_all_tie_breaks(rows: list[tuple[int, int, int]], k: int) -> None:
    score, result, cost = np.array(rows, np.float64).T
    curve = regret_curve(score, result, cost, k)
    for budget, found in zip(budget_ladder(cost), curve, strict=True):
        kept = np.flatnonzero(cost <= budget)
        losses = [result[kept].max() - result[kept][order[:k]].max() for order in orders(score[kept])]
        assert found == pytest.approx(np.mean(losses), abs=1e-12)
    assert regret(score, result, cost, k) == pytest.approx(np.mean(curve))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=5), K)
def test_overlap_is_the_mean_over_all_tie_breaks(rows: list[tuple[int, int]], k: int) -> None:
    score, result = np.array(rows, np.float64).T
    shares = [len(set(a[:k]) & set(b[:k])) / min(k, len(rows)) for a in orders(score) for b in orders(result)]
    assert top_overlap(score, result, k) == pytest.approx(np.mean(shares), abs=1e-12)


def test_a_random_choice_is_the_mean_of_random_choices() -> None:
    rng = np.random.default_rng(0)
    result, cost = rng.normal(size=(2, 30))
    for k in (1, 5):
        chosen = [regret(rng.permutation(30).astype(np.float64), result, cost, k) for _ in range(2000)]
        assert random_regret(result, cost, k) == pytest.approx(np.mean(chosen), abs=0.05)


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=60))
def test_the_ladder_is_numpys_and_its_steps_fall_on_costs(cost: list[int]) -> None:
    values: Ints = np.array(cost, np.int64)
    ladder = budget_ladder(values)
    assert ladder == pytest.approx(np.quantile(values, np.arange(2, 21) / 20), rel=1e-12)
    exact = [(len(cost) - 1) * step for step in range(2, 21)]
    on_costs = [budget for budget, position in zip(ladder, exact, strict=True) if position % 20 == 0]
    assert set(on_costs) <= set(values.tolist())


def test_costs_pair_with_scores() -> None:
    ones = np.ones(3)
    with pytest.raises(ValueError, match="do not pair"):
        regret(ones, ones, np.ones(2), 1)


Loaded = tuple[list[Architecture], Floats, dict[str, Floats]]
SCORES = ("body_params", "geo", "geo_saturating")


def load(name: str, view: str | None, data_folder: Path) -> Loaded:
    truth = read(locate(name, str(data_folder)))
    networks = next(v.architectures for v in views(truth) if v.name == view)
    batch = ScoreBatch.of(networks)
    return networks, quality(truth, truth.metric), {s: make_score(s).of_many(batch) for s in SCORES}


@pytest.fixture(scope="module")
def gpt2(data_folder: Path) -> Loaded:
    return load("gpt2_wt103", None, data_folder)


@pytest.fixture(scope="module")
def flexibert(data_folder: Path) -> Loaded:
    return load("flexibert_glue", "trained", data_folder)


def regrets(loaded: Loaded, score: str, k: int) -> float:
    _, result, scores = loaded
    cost = scores["body_params"]
    return random_regret(result, cost, k) if score == "random" else regret(scores[score], result, cost, k)


GPT2 = {"random": (15.2, 4.8), "body_params": (3.5, 0.44), "geo": (1.8, 0.10)}


@pytest.mark.parametrize("score", GPT2)
def test_gpt2_under_a_ladder_of_budgets(score: str, gpt2: Loaded) -> None:
    one, five = GPT2[score]
    assert regrets(gpt2, score, 1) == pytest.approx(one, abs=0.05)
    assert regrets(gpt2, score, 5) == pytest.approx(five, abs=0.05 if score == "random" else 0.005)


FLEXIBERT = {"random": 5.8, "body_params": 3.0, "geo": 2.2, "geo_saturating": 1.3}


@pytest.mark.parametrize("score", FLEXIBERT)
def test_flexibert_under_a_ladder_of_budgets(score: str, flexibert: Loaded) -> None:
    assert regrets(flexibert, score, 1) == pytest.approx(FLEXIBERT[score], abs=0.05)


def test_the_noise_ceiling_of_flexibert(flexibert: Loaded) -> None:
    """About .82 / .95: .80 / .94 if equal shapes are one network, .84 / .96 if equal heads are needed too."""
    networks, result, _ = flexibert
    shapes = [repr(network.layers) for network in networks]
    heads = [
        shape + repr([layer["num_operation_heads"] for layer in network.choices["encoder_layers"]])
        for shape, network in zip(shapes, networks, strict=True)
    ]
    for keys, tau, rho in ((shapes, 0.801, 0.944), (heads, 0.844, 0.962)):
        ceiling = noise_ceiling(result, np.unique(keys, return_inverse=True)[1])
        assert ceiling.tau == pytest.approx(tau, abs=0.004)
        assert ceiling.rho == pytest.approx(rho, abs=0.004)
