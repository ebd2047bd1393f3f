"""The default number of calibration tokens, which depends on the matrices that are fitted with them."""

from __future__ import annotations

import math
from typing import Final

from zerolm.carving.request import Methods
from zerolm.checkpoints import Checkpoint
from zerolm.settings.domains import domains_of
from zerolm.text.calibration import longest_line, tokens_of
from zerolm.text.defaults import GENERATED, RANDOM
from zerolm.text.generated import WORDS
from zerolm.units.kept_units import Dimensions, dimensions

PER_INPUT: Final = 8
"""Tokens for each input of the widest output matrix: least squares fits noise with fewer."""
LEAST_TOKENS: Final = 1 << 16
MOST_TOKENS: Final = 1 << 18
GENERATED_TOKENS: Final = 1 << 14
"""Tokens that a parent samples without a text: sampling a token takes longer than reading one."""
COUNTED: Final = 256
"""Lines whose tokens are counted to estimate the tokens per line of a text."""


def tokens_wanted(checkpoint: Checkpoint) -> int:
    """Return the number of calibration tokens for the widest output matrix of a parent."""
    return min(MOST_TOKENS, max(LEAST_TOKENS, PER_INPUT * inputs_of(dimensions(checkpoint))))


def loss_by_twice(loss: float, by_fewer: float, fewer: int) -> float:
    """Return the loss with twice the tokens, from that with all and that with one in ``fewer`` of them.

    The loss of a regression is a + b / n for n tokens.
    """
    return loss - max(0.0, by_fewer - loss) / (2 * (fewer - 1))


def inputs_of(parent: Dimensions) -> int:
    """Return the number of inputs of the widest output matrix."""
    return max(parent.ffn, parent.heads * parent.head_size)


def usual_sequences(checkpoint: Checkpoint, methods: Methods) -> int:
    """Return the number of sequences with ``tokens_wanted`` tokens: an encoder's are lines of any length."""
    length = longest_line(checkpoint, methods.length)
    text = methods.text
    if checkpoint.family.task != "next" and text not in (None, RANDOM, GENERATED) and not domains_of(text):
        few = tokens_of(checkpoint, str(text), sequences=COUNTED, length=methods.length)
        length = max(1, few.count // len(few))
    elif checkpoint.family.task != "next" and text == GENERATED:
        length = min(length, sum(WORDS) // 2)
    wanted = GENERATED_TOKENS if text == GENERATED else tokens_wanted(checkpoint)
    return math.ceil(wanted / length)
