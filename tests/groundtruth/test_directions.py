"""Directions of metrics: those that a name says, and names that say nothing."""

import pytest

from zerolm.groundtruth.directions import HIGHER, LOWER, TURNING, known_direction

METRICS = {
    False: ["val_bpb", "bpc", "test_nll", "mse", "WER", "cer", "loss", "valid_ppl", "perplexity",
            "error_rate", "evalLoss", "ppl (avg)", "train-loss", "test_word_ppl", "loss2"],
    True: ["accuracy", "val_acc", "top1_acc", "testAcc", "f1", "macro-F1", "bleu4", "glue_avg", "c100_kd_acc",
           "AUC", "mnli"],
    None: ["quality", "score", "tokens", "bits", "accident", "flosses", "nppl", "acc_loss", "neg_loss",
           "-loss", "1-acc", "accuracy drop", "loss_std", "speed", ""],
}  # fmt: skip


@pytest.mark.parametrize("is_higher_better", METRICS)
def test_what_a_name_says(is_higher_better: bool | None) -> None:
    names = METRICS[is_higher_better]
    assert {name: known_direction(name) for name in names} == dict.fromkeys(names, is_higher_better)


def test_no_word_says_two_things() -> None:
    assert not LOWER & HIGHER
    assert not (LOWER | HIGHER) & TURNING
