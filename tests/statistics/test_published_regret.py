"""Regret and the noise ceiling on published results, against independent measurements."""

from pathlib import Path

import numpy as np
import pytest

from zerolm.architecture import Architecture, Floats
from zerolm.groundtruth.reader import locate, quality, read, views
from zerolm.scores import ScoreBatch, make_score
from zerolm.statistics import noise_ceiling, random_regret, regret

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
