"""Weights of tokens where the first of a sequence counts as all others of it together."""

from __future__ import annotations

from typing import Any

import numpy as np

from zerolm.architecture import Floats
from zerolm.networks.blocks import Blocks
from zerolm.text.tokens import Tokens


def first_as_others(network: Any, tokens: Tokens, weights: Floats) -> Floats:
    """The weights (n,) of tokens that are no padding, sequence after sequence; an encoder's as they are."""
    if not Blocks(network, []).predicts:
        return weights
    counts = [tokens.ids.shape[1]] * len(tokens) if tokens.mask is None else tokens.mask.sum(1).tolist()
    parts = np.split(weights, np.cumsum(counts)[:-1].astype(int))
    return np.concatenate([np.concatenate([[part[1:].sum()], part[1:]]) for part in parts])
