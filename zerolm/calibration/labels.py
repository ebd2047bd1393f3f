"""Trained architectures with their results: what calibrations are fitted to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from zerolm.architecture import Floats, Ints
from zerolm.calibration.pool import Pool


@dataclass(frozen=True, eq=False)
class Labels:
    """Architectures of one space (with its settings) with their results, (n,), signed: higher is better."""

    space: str
    settings: dict[str, Any]
    metric: str
    higher_is_better: bool
    pool: Pool
    result: Floats

    def __len__(self) -> int:
        return len(self.result)

    @property
    def varied(self) -> bool:
        """Whether results differ."""
        return len(set(self.result.tolist())) > 1


def part(labels: Labels, indices: Ints) -> Labels:
    """Return the labels of these architectures alone."""
    return replace(labels, pool=labels.pool.take(indices), result=labels.result[indices])
