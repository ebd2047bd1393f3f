"""The size of the vocabulary within budgets: what fewer tokens lose beside what all other cuts then lose."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from zerolm.carving.vocabulary.byte_losses import TokenLosses
from zerolm.carving.vocabulary.kept_tokens import TokenUse
from zerolm.networks.opener import is_decoder
from zerolm.progress import Progress

SHARES: Final = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
"""The shares of the used tokens that are tried, beside all tokens of the parent."""
Beside = Callable[[int], tuple[int, float]]
"""The parameters of the best child with so many tokens, and what its other cuts lose: in nats a token."""


@dataclass(frozen=True)
class TriedSize:
    """A vocabulary of ``size`` tokens: the ``params`` of the child, and its losses in bits a byte.

    ``tokens`` is what fewer of them lose, ``rest`` what the other cuts do; of an encoder 1 - cosine.
    """

    size: int
    params: int
    tokens: float
    rest: float

    @property
    def loss(self) -> float:
        """Return both losses together."""
        return self.tokens + self.rest

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def tried_sizes(
    use: TokenUse, losses: TokenLosses, beside: Beside, step: int, progress: Progress
) -> list[TriedSize]:
    """Return the sizes of the vocabulary that were tried, the largest first; ``ValueError`` if none goes.

    Smaller ones are not tried once fewer tokens alone lose more than the best size does in all.
    """
    before, scale = losses.loss(None), 1.0
    if is_decoder(losses.checkpoint):
        scale = losses.tokens / losses.bytes / math.log(2)
    tried: list[TriedSize] = []
    refused: list[ValueError] = []
    sizes = list(dict.fromkeys(_sizes(use, step)))
    for number, size in enumerate(sizes):
        progress("trying sizes of the vocabulary", number, len(sizes))
        try:
            params, rest = beside(size)
        except ValueError as error:
            refused.append(error)
            continue
        gone = 0.0 if size >= use.used else max(0.0, losses.loss(use.kept(size)) - before)
        tried.append(TriedSize(size, params, gone, rest * scale))
        if gone > min(one.loss for one in tried):
            break
    if not tried:
        raise refused[-1]
    return tried


def best_size(tried: list[TriedSize]) -> int:
    """Return the size of least loss, of equals the smaller one."""
    return min(tried, key=lambda one: (one.loss, one.size)).size


def _sizes(use: TokenUse, step: int) -> Iterator[int]:
    yield use.table.rows
    for share in SHARES:
        size = max(use.least, round(share * use.used))
        yield min(use.table.rows, -(-size // step) * step)
