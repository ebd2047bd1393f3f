"""Results of a classifier on clean and on attacked texts, as defined by TextAttack (arXiv 2005.05909)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

ACCURACY: Final = "accuracy"
UNDER_ATTACK: Final = "accuracy_under_attack"
SUCCESS: Final = "attack_success_rate"
DROP: Final = "accuracy_drop"
PERPLEXITY: Final = "perplexity"
BITS: Final = "bits_a_byte"
KL: Final = "kl"
DISTANCE: Final = "distance"
HIGHER_IS_BETTER: Final = {
    **{ACCURACY: True, UNDER_ATTACK: True, SUCCESS: False, DROP: False},
    **{PERPLEXITY: False, BITS: False, KL: False, DISTANCE: False},
}
"""All results by name, and whether higher is better."""


def share_right(predicted: Sequence[int], labels: Sequence[int]) -> float:
    """Return the share of correctly classified texts."""
    return sum(one == label for one, label in zip(predicted, labels, strict=True)) / len(labels)


def under_attack(
    before: Sequence[int], after: Sequence[int], labels: Sequence[int], attacked: Sequence[bool]
) -> dict[str, float]:
    """Return the accuracy under attack, the attack success rate, and the drop of accuracy.

    ``before`` and ``after`` (n,) are the predicted classes of each original text and of its attacked version.
    A network that misclassifies the original is not attacked, and counts as wrong under attack. For a text
    that is not ``attacked`` both are equal, and it counts as neither a failed nor a successful attack. For
    the network that was attacked these are TextAttack's figures; without any attack the rate is 0, as there.
    """
    rows = list(zip(before, after, labels, attacked, strict=True))
    right_before = [row for row in rows if row[0] == row[2]]
    right_after = [row for row in right_before if row[1] == row[2]]
    tried, failed = (sum(row[3] for row in some) for some in (right_before, right_after))
    return {
        UNDER_ATTACK: len(right_after) / len(rows),
        SUCCESS: (tried - failed) / tried if tried else 0.0,
        DROP: (len(right_before) - len(right_after)) / len(rows),
    }
