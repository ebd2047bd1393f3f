"""Equation 3 of ZeroLM (arXiv 2503.18646) as a score of cuts, literally; no criterion of ``carve``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.units.importance.criterion import Criterion
from zerolm.units.importance.weights import Share, Shares, all_shares
from zerolm.units.kept_units import best


@dataclass(frozen=True, eq=False)
class CutCapacity(Criterion):
    """||W||_F^2 / min(rows, cols) of the cut matrices.

    Where the cut side is already the shorter one, removing below-average units raises it.
    """

    parts: Shares

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> CutCapacity:
        return cls(all_shares(checkpoint, ledger_of(checkpoint)))

    def choose(self, layer: int, kind: str, count: int) -> Ints:
        weighed: list[Floats] = [share.squares / _side(share, count) for share in self.parts[kind][layer]]
        return best(np.sum(weighed, axis=0), count)

    def score(self, layer: int, kind: str, count: int) -> float:
        units = self.choose(layer, kind, count)
        return sum(
            float(share.squares[units].sum()) / _side(share, count) for share in self.parts[kind][layer]
        )


def _side(share: Share, count: int) -> int:
    """Return the shorter side of the cut matrix."""
    return min(count * share.unit_side, share.other_side)
