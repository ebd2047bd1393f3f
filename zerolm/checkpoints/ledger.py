"""What one streaming pass over a checkpoint leaves behind: sums of each row and column of each matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zerolm.architecture import Floats
from zerolm.checkpoints.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Sums:
    """Of each row (or column), (n,) float64: sum of squares, of absolute values, largest and smallest value."""

    squares: Floats
    absolute: Floats
    largest: Floats
    smallest: Floats


@dataclass(frozen=True, slots=True)
class Totals:
    """The same of a whole tensor of ``count`` weights."""

    count: int
    squares: float
    absolute: float
    largest: float
    smallest: float


class Ledger:
    """Sums of all tensors, and of the rows and columns of the matrices in layers."""

    def rows(self, name: str) -> Sums:
        """Of each row of a matrix in a layer, as stored (axis 0); ``KeyError`` for another tensor."""
        raise NotImplementedError

    def cols(self, name: str) -> Sums:
        """Of each column (axis 1)."""
        raise NotImplementedError

    def total(self, name: str) -> Totals:
        """Of a whole tensor."""
        raise NotImplementedError


def ledger_of(
    checkpoint: Checkpoint,
    *,
    verify: bool = False,
    cache: bool = True,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Ledger:
    """The ledger of a checkpoint: from the cache where its shards have not changed, else by one pass.

    A shard counts as unchanged while its header, size and time of change are the same; ``verify`` compares a
    SHA-256 of its content too. ``progress`` is told bytes done and bytes in all. Raises ``ValueError`` that
    names the tensor for weights that are not finite. Shards already done are kept when it is killed.
    """
    raise NotImplementedError
