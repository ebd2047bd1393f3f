"""Architectures with everything that calibrations ask of them, computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from zerolm.architecture import Architecture, Floats, Ints
from zerolm.calibration.dictionary import entry_values
from zerolm.calibration.features import choice_columns, shape_features
from zerolm.io.brief import Brief
from zerolm.scores import ScoreBatch


@dataclass(frozen=True, eq=False, repr=False)
class Pool(Brief):
    """n architectures as columns; ``take`` restricts them without computing anything again."""

    architectures: tuple[Architecture, ...]

    @classmethod
    def of(cls, architectures: Sequence[Architecture]) -> Pool:
        return cls(tuple(architectures))

    def __len__(self) -> int:
        return len(self.architectures)

    @cached_property
    def batch(self) -> ScoreBatch:
        return ScoreBatch.of(self.architectures)

    @cached_property
    def entries(self) -> Floats:
        """Values of the dictionary's entries, (61, n)."""
        return entry_values(self.batch)

    @cached_property
    def shapes(self) -> Floats:
        """Logarithms of sizes, (n, 13)."""
        return shape_features(self.batch)

    @cached_property
    def choices(self) -> list[Mapping[str, float]]:
        return [choice_columns(a.choices) for a in self.architectures]

    def take(self, indices: Sequence[int] | Ints) -> Pool:
        part = Pool(tuple(self.architectures[i] for i in indices))
        attributes = part.__dict__  # where cached properties live
        attributes["entries"] = self.entries[:, indices]
        attributes["shapes"] = self.shapes[np.asarray(indices)]
        attributes["choices"] = [self.choices[i] for i in indices]
        return part
