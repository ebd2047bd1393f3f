"""Weights of tokens where the first of a sequence counts as a number of the others."""

import numpy as np

from zerolm.architecture import Floats
from zerolm.text.tokens import Tokens


def with_first(weights: Floats, tokens: Tokens, first: float | None) -> Floats:
    if first is None:
        return weights
    counts = [tokens.ids.shape[1]] * len(tokens) if tokens.mask is None else tokens.mask.sum(1).tolist()
    parts = np.split(weights, np.cumsum(counts)[:-1].astype(int))
    return np.concatenate([np.concatenate([[first * part[1:].mean()], part[1:]]) for part in parts])
