"""A supernet that is trained: its widths grow as ELM has it, by components of known ranks; its diversity."""

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_supernets import Drawn, normal, run_of, space_of
from torch import Tensor

from zerolm.lab.supernets.learner import SupernetLearner, diversity, grown, growths, mean_params, pca_count
from zerolm.lab.supernets.request import Growth, Teaching
from zerolm.lab.supernets.supernet import Supernet
from zerolm.training.train import train
from zerolm.training.watch import TrainingRun

STEPS = 18


def learner_of(growth: Growth, accumulate: int = 1) -> SupernetLearner:
    return SupernetLearner(Supernet(space_of()), Teaching(), growth, STEPS, seed=3, accumulate=accumulate)


def test_widths_grow_by_the_scores_that_are_kept(tmp_path: Path) -> None:
    learner = learner_of(Growth(epochs=3, growth=1, every=1))
    train(learner, Drawn(), run_of(STEPS), TrainingRun(tmp_path))
    learner.end_epoch(2, Drawn()[0]["input_ids"][None], [0, 1])
    rows = learner.history()
    assert [row.epoch for row in rows] == [1, 2, 3]
    for row, after in pairwise(rows):
        widths, scores = np.array(row.widths), np.array(row.scores)
        assert after.widths == grown(widths, scores, 4, 12, 2 * 1 * 6 // 3).tolist()
        assert np.array(after.widths).sum() - widths.sum() == 4 * 4
        assert ((scores >= 0) & (scores <= widths)).all()
    assert learner.supernet.widths.tolist() == rows[-1].widths
    assert all(-1 <= value <= 1 for row in rows for value in row.diversity)
    assert all([[kind for kind, score in enumerate(layer) if score] for layer in rows[0].scores])


def test_growth_changes_no_weight() -> None:
    learner = learner_of(Growth(epochs=2, every=1))
    before = {name: value.clone() for name, value in learner.supernet.stack.state_dict().items()}
    learner.sums += 1
    learner.counts += 1
    learner.end_epoch(0, Drawn()[0]["input_ids"][None], [0, 0])
    assert int(learner.supernet.widths.min()) > 4 - 1
    assert int(learner.supernet.widths.sum()) > 12 * 4
    assert all(torch.equal(v, before[name]) for name, v in learner.supernet.stack.state_dict().items())


@pytest.mark.parametrize(("most", "stays"), [(None, False), (10**9, False), (1, True)])
def test_nothing_grows_beyond_the_budget(most: int | None, stays: bool) -> None:
    learner = learner_of(Growth(epochs=2, mean_params=most))
    learner.end_epoch(0, Drawn()[0]["input_ids"][None], [0, 0])
    assert (int(learner.supernet.widths.sum()) == 12 * 4) == stays


def test_batches_of_one_step_take_one_path() -> None:
    learner = learner_of(Growth(), accumulate=2).train()
    sample = {name: value[None] for name, value in Drawn()[0].items()}
    paths: list[Any] = []
    features = learner.supernet.features

    def noted(ids: Tensor, path: Any) -> Any:
        paths.append(path)
        return features(ids, path)

    learner.supernet.features = noted  # type: ignore[method-assign]
    for _ in range(6):
        learner(**sample)
    assert paths[0::2] == paths[1::2]
    assert paths[0] != paths[2] or paths[2] != paths[4]


def test_evaluation_leaves_no_trace() -> None:
    learner = learner_of(Growth(every=1)).train(False)
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    learner(**{name: value[None] for name, value in Drawn()[0].items()})
    assert all(torch.equal(value, before[name]) for name, value in learner.state_dict().items())


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
