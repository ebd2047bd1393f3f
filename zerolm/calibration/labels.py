"""Trained architectures with their results: what calibrations are fitted to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from zerolm.architecture import Floats, Ints
from zerolm.calibration.pool import Pool
from zerolm.io.brief import brief


@dataclass(frozen=True, eq=False, repr=False)
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

    def __repr__(self) -> str:
        better = "higher" if self.higher_is_better else "lower"
        return brief(self, f"{len(self)} architectures of {self.space}", f"{self.metric}, {better} is better")

    @property
    def varied(self) -> bool:
        """Whether results differ."""
        return len(set(self.result.tolist())) > 1


def part(labels: Labels, indices: Ints) -> Labels:
    """Return the labels of these architectures alone."""
    return replace(labels, pool=labels.pool.take(indices), result=labels.result[indices])
