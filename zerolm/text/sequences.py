"""Tokens to sequences: where they are cut from a text, and the one place where they are cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def spread_evenly(tokens: int, size: int, count: int) -> list[int]:
    """Return the starts of ``count`` sequences of ``size`` in a text of ``tokens`` tokens, evenly over all of
    it.

    The first begins the text and the last ends it; none overlap where the text is long enough.
    """
    return [step * (tokens - size) // max(count - 1, 1) for step in range(count)]


def cut(
    ids: NDArray[Any], firsts: Sequence[int], size: int, start: Sequence[int] = (), end: Sequence[int] = ()
) -> Tensor:
    """Return sequences (n, start + size + end): ``size`` tokens of a text from each of ``firsts`` on.

    Each stands between the tokens ``start`` and ``end``.
    """
    before, behind = (np.array(edge, np.int64) for edge in (start, end))
    rows = [np.concatenate([before, ids[first : first + size], behind]) for first in firsts]
    return torch.from_numpy(np.stack(rows).astype(np.int64))
