"""Whether higher or lower results are better, as far as the name of a metric says."""

from __future__ import annotations

import re
from typing import Final

LOWER: Final = {
    "loss", "ppl", "perplexity", "bpb", "bpc", "bpw", "nll", "entropy", "mse", "rmse", "mae", "wer", "cer",
    "eer", "err", "error", "errors", "fid",
}  # fmt: skip
"""Words of metrics that are better when they are lower."""
HIGHER: Final = {
    "accuracy", "acc", "f1", "bleu", "sacrebleu", "chrf", "rouge", "meteor", "auc", "auroc", "auprc", "mrr",
    "ndcg", "mcc", "pearson", "spearman", "mmlu", "hellaswag", "piqa", "boolq", "glue", "superglue",
    "cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst", "sts", "stsb", "wnli",
}  # fmt: skip
"""Words of metrics that are better when they are higher; GLUE's tasks are accuracies and correlations."""
TURNING: Final = {
    "neg", "negative", "minus", "inverse", "inv", "drop", "gap", "delta", "diff", "difference", "change",
    "reduction", "improvement", "gain", "increase", "decrease", "std", "stderr", "stdev", "var", "variance",
}  # fmt: skip
"""Words that may turn a metric round, or make a spread of it: then the name says nothing."""


def known_direction(metric: str) -> bool | None:
    """Return whether higher is better in a metric, from the words of its name; None where they do not say.

    ``val_bpb``, ``testAcc`` and ``ppl (avg)`` are known by one word; two that disagree say nothing.
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", metric).lower()
    words = set(re.findall(r"[a-z]+", spaced)) | set(re.findall(r"[a-z]+[0-9]+", spaced))
    lower, higher = bool(words & LOWER), bool(words & HIGHER)
    if lower == higher or words & TURNING or re.match(r"\s*(-|1\s*-)", metric):
        return None
    return higher
