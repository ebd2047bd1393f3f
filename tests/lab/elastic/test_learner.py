"""A supernet that is trained: killed and resumed it ends the same, its widths grow as ELM has it."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_supernets import Drawn, run_of, space_of
from torch import Tensor

from zerolm.lab.supernets.learner import SupernetLearner, grown
from zerolm.lab.supernets.request import Growth, Teaching
from zerolm.lab.supernets.supernet import Supernet
from zerolm.training.train import train
from zerolm.training.watch import TrainingRun

STEPS = 18


def learner_of(
    growth: Growth, name: str = "elastic", steps: int = STEPS, accumulate: int = 1
) -> SupernetLearner:
    return SupernetLearner(Supernet(space_of(name)), Teaching(), growth, steps, seed=3, accumulate=accumulate)


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
