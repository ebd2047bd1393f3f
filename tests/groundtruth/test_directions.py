"""Directions of metrics: those that a name says, and names that say nothing."""

from __future__ import annotations

import pytest

from zerolm.groundtruth.directions import HIGHER, LOWER, TURNING, known_direction


@pytest.mark.parametrize(
    "metric",
    ["val_bpb", "bpc", "test_nll", "mse", "WER", "cer", "loss", "valid_ppl", "perplexity", "error_rate",
     "evalLoss", "ppl (avg)", "train-loss", "test_word_ppl", "loss2"],
)  # fmt: skip
def test_lower_is_better(metric: str) -> None:
    assert known_direction(metric) is False


@pytest.mark.parametrize(
    "metric",
    ["accuracy", "val_acc", "top1_acc", "testAcc", "f1", "macro-F1", "bleu4", "glue_avg", "c100_kd_acc",
     "AUC", "mnli"],
)  # fmt: skip
def test_higher_is_better(metric: str) -> None:
    assert known_direction(metric) is True


@pytest.mark.parametrize(
    "metric",
    ["quality", "score", "tokens", "bits", "accident", "flosses", "nppl", "acc_loss", "neg_loss", "-loss",
     "1-acc", "accuracy drop", "loss_std", "speed", ""],
)  # fmt: skip
def test_nothing_is_known(metric: str) -> None:
    assert known_direction(metric) is None


def test_no_word_says_two_things() -> None:
    assert not LOWER & HIGHER
    assert not (LOWER | HIGHER) & TURNING
