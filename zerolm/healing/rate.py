"""The learning rate that suits a child."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

RATE_OF_DAMAGE: Final = 4e-3
"""The learning rate at a loss of one nat a token: the rate follows the damage."""
RATES: Final = (2e-5, 2e-3)
LARGE_RATE: Final = 5e-6
"""The learning rate of a decoder with a large vocabulary, measured on Gemma 3 270M. Ten times this rate
nearly doubled its loss in the first step."""
MANY_STEPS: Final = 400
"""Of fewer steps the rate is smaller, by the root of their share."""
LORA_RATE: Final = 4.0
"""The learning rate of adapters, as a multiple of that of whole weights."""


def damage_of(losses: Mapping[str, float]) -> float:
    """Return the loss increase of a child by the measures of held-out text: KL in nats a token, or 1 -
    cosine."""
    return losses["kl"] if "kl" in losses else 1.0 - losses["cosine"]


def rate_of(damage: float, steps: int, lora: int | None, *, large: bool = False) -> float:
    """Return the learning rate that suits a loss and a number of steps, and a ``large`` vocabulary.

    Adam's first steps are as large as the rate: where there is little damage, or little time, a large one
    breaks more than it mends.
    """
    low, high = RATES
    rate = RATE_OF_DAMAGE * damage * min(1.0, math.sqrt(steps / MANY_STEPS))
    rate = LARGE_RATE if large else min(high, max(low, rate))
    return rate * (LORA_RATE if lora else 1.0)
