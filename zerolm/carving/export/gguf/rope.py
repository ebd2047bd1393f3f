"""Rotary positions as GGUF has them: a base, and factors by which frequencies are divided."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

SCALED: Final = ("linear", "llama3")
"""Scalings that give each frequency a factor, whatever the length of the text."""


def factors_of(config: PreTrainedConfig) -> NDArray[np.float32] | None:
    """Return the divisors (e / 2,) of the frequencies base^(-2i / e) of a llama or mistral, heads of size e.

    None where nothing does; ``ValueError`` for a scaling that is not so simple.
    """
    parameters = config.rope_parameters
    kind, share = parameters.get("rope_type"), parameters.get("partial_rotary_factor", 1.0)
    if kind not in ("default", *SCALED) or share != 1.0:
        scaling = f"{kind!r}" if share == 1.0 else f"partial_rotary_factor {share}"
        types = f"default, {' and '.join(SCALED)}"
        raise ValueError(f"gguf is written with rope types {types}, not with {scaling}")
    for name, value in parameters.items():
        is_positive = isinstance(value, int | float) and 0 < value < math.inf
        if not is_positive and name not in ("rope_type", "type"):
            raise ValueError(f"the rope parameter {name} is {value!r}; a positive number is possible")
    if kind == "default":
        return None
    scaled, _ = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))  # (e / 2,)
    elements = torch.arange(0, 2 * len(scaled), 2) / (2 * len(scaled))
    factors: NDArray[np.float32] = (parameters["rope_theta"] ** -elements / scaled).to(torch.float32).numpy()
    return factors
