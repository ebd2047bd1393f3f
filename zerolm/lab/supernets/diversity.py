"""Diversity of the candidate blocks of a layer: how alike their outputs are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor
from torch.nn import functional


def diversity(outputs: Sequence[Tensor]) -> float:
    """Return the mean cosine similarity of each two blocks' outputs (b, t, d) for the same input.

    The mean over tokens and pairs, from -1 to 1; less is more diverse (ELM, arXiv 2510.27037, figure 6).
    ``ValueError`` for fewer than two blocks.
    """
    if len(outputs) < 2:
        raise ValueError(f"{len(outputs)} blocks have no diversity; two are the least")
    pairs = combinations([output.detach().double() for output in outputs], 2)
    return float(torch.stack([functional.cosine_similarity(a, b, dim=-1).mean() for a, b in pairs]).mean())
