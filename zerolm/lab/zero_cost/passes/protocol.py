"""How passes are run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, get_args

from zerolm.lab.zero_cost.result import Mode, Upstream

MODES: Final[tuple[str, ...]] = get_args(Mode)
UPSTREAMS: Final[tuple[str, ...]] = get_args(Upstream)


@dataclass(frozen=True)
class Protocol:
    """``sane`` is what the papers mean, in evaluation mode; ``faithful`` what released code computes.

    ``upstream`` is what gradients come from: the loss of the task, or the sum of the final hidden states
    (``ones``), which is constant behind a layer norm. The batch is passed in ``parts`` micro-batches.
    ``seed`` draws dropout masks (faithful mode trains), Gaussian inputs and random directions.
    """

    mode: Mode = "sane"
    upstream: Upstream = "task"
    parts: int = 8
    seed: int = 0

    @property
    def faithful(self) -> bool:
        return self.mode == "faithful"
