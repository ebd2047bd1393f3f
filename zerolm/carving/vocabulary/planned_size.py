"""The size of the vocabulary within budgets: the loss of fewer tokens against that of all other cuts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from zerolm.carving.vocabulary.byte_losses import TokenLosses
from zerolm.carving.vocabulary.kept_tokens import TokenUse
from zerolm.carving.vocabulary.result import TriedSize
from zerolm.carving.vocabulary.text_use import TextUse
from zerolm.networks.opener import is_decoder
from zerolm.progress import Progress

SHARES: Final = (3.0, 2.0, 1.5, 1.2, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
"""The tried sizes as shares of the used tokens, in addition to all tokens of the parent."""
SMALL: Final = 0.01
"""A loss by fewer tokens, as a share of the parent's bits per byte, below which they are not compared with
other units."""
SMALL_DISTANCE: Final = 1e-3
"""The same for an encoder, as 1 - cosine."""


class Rest(NamedTuple):
    """The best child for a number of tokens: its parameters, and its loss without that of fewer tokens.

    The loss is in nats per token, or 1 - cosine. ``bytes`` are those of its weights where they have types.
    """

    params: int
    loss: float
    bytes: int | None = None


@dataclass(frozen=True)
class BestByTokens:
    """The best child within the budgets as functions of its number of tokens.

    ``check`` raises ``ValueError`` where no child is possible, before any long computation. ``fits`` returns
    whether the parent with a number of tokens, of ``params`` parameters, keeps the budgets with nothing else
    cut. ``best`` returns the best child, or raises ``ValueError``. ``has_types``: weights get quantisation
    types. Eight bits lose almost nothing, so even a small loss by fewer tokens has to be compared.
    """

    check: Callable[[int], None]
    params: Callable[[int], int]
    fits: Callable[[int], bool]
    best: Callable[[int], Rest]
    has_types: bool = False


def tried_sizes(
    use: TextUse, losses: TokenLosses, best_by_tokens: BestByTokens, step: int, progress: Progress
) -> list[TriedSize]:
    """Return the tried sizes of the vocabulary, the largest first; ``ValueError`` if none is possible.

    The first is the largest number of tokens with which nothing else has to be cut. If its loss is small, no
    other is tried. Otherwise larger ones are, until the loss of other cuts or of fewer tokens alone exceeds
    the best total.
    """
    before, scale = losses.loss(None), losses.bits_a_nat
    small = SMALL * before if is_decoder(losses.checkpoint) else SMALL_DISTANCE
    rows, least = use.whole.table.rows, use.whole.least

    def loss_of(size: int) -> float:
        return 0.0 if size == rows else max(0.0, losses.loss(use.chosen(size, whole=False)) - before)

    alone = _most(best_by_tokens.fits, least, rows, step)
    tried = [] if alone is None else [TriedSize(alone, best_by_tokens.params(alone), loss_of(alone), 0.0)]
    if tried and tried[0].tokens <= small and not best_by_tokens.has_types:
        return tried
    sizes = [size for size in usual_sizes(use.whole, step) if size > (alone or 0)]
    refused: list[ValueError] = []
    for number, size in enumerate(sizes):
        progress("trying sizes of the vocabulary", number, len(sizes))
        try:
            rest = best_by_tokens.best(size)
        except ValueError as error:
            refused.append(error)
            continue
        top = min((one.loss for one in tried), default=math.inf)
        if rest.loss * scale >= top:
            continue
        tried.append(TriedSize(size, rest.params, loss_of(size), rest.loss * scale, rest.bytes))
        if tried[-1].tokens > top:
            break
    if not tried:
        raise refused[-1]
    return sorted(tried, key=lambda one: -one.size)


def best_size(tried: list[TriedSize]) -> int:
    """Return the size of least loss; ties go to the larger one."""
    return min(tried, key=lambda one: (one.loss, -one.size)).size


def _most(fits: Callable[[int], bool], least: int, rows: int, step: int) -> int | None:
    """Return the largest number of tokens that fits, a multiple of a step; None where none does."""
    if fits(rows):
        return rows
    low, high = -(-least // step), rows // step  # in steps
    if low > high or not fits(low * step):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle * step) else (low, middle - 1)
    return low * step


def usual_sizes(use: TokenUse, step: int) -> list[int]:
    """Return sizes from all tokens of the parent to a tenth of the used ones, the largest first."""
    rows = use.table.rows
    sizes = (max(use.least, round(share * use.used)) for share in SHARES)
    return list(dict.fromkeys([rows, *(min(rows, -(-size // step) * step) for size in sizes)]))
