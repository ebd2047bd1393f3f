"""Architectures with everything that calibrations ask of them, computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from zerolm.architecture import Architecture, Floats, Ints
from zerolm.calibration.dictionary import entry_values
from zerolm.calibration.features import choice_columns, shape_features
from zerolm.io.brief import Brief, brief
from zerolm.scores import ScoreBatch, make_score

UNLIKELY: Final = 0.01
"""Probability below which an agreement of size and result is not taken for chance."""


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


@dataclass(frozen=True, eq=False, repr=False)
class Labels:
    """Architectures of one space (with its settings) with their results, (n,), signed: higher is better.

    ``repeated`` counts the results beyond the first of an architecture; its label is the mean of its results.
    """

    space: str
    settings: dict[str, Any]
    metric: str
    higher_is_better: bool
    pool: Pool
    result: Floats
    repeated: int = 0

    def __len__(self) -> int:
        return len(self.result)

    def __repr__(self) -> str:
        better = "higher" if self.higher_is_better else "lower"
        return brief(self, f"{len(self)} architectures of {self.space}", f"{self.metric}, {better} is better")

    @property
    def varied(self) -> bool:
        """Whether results differ."""
        return len(set(self.result.tolist())) > 1

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """The warnings: of means, and of a direction by which larger networks are significantly worse."""
        from scipy.stats import kendalltau  # slow to import

        warnings = []
        if self.repeated:
            warnings.append(
                f"{self.repeated} results are of architectures given before: the mean of each counts"
            )
        sizes = make_score("body_params").of_many(self.pool.batch)
        if kendalltau(sizes, self.result, alternative="less").pvalue < UNLIKELY:
            warnings.append(doubt_of_direction(self.metric, higher_is_better=self.higher_is_better))
        return tuple(warnings)


def doubt_of_direction(metric: str, *, higher_is_better: bool) -> str:
    """Return the advice for results that say larger networks are worse: the direction may be wrong."""
    other = "lower" if higher_is_better else "higher"
    return (
        f"larger networks have the worse {metric}; if {other} is better, name the column "
        f"{metric}:{other}, or in JSON give directions"
    )


def part(labels: Labels, indices: Ints) -> Labels:
    """Return the labels of these architectures alone."""
    return replace(labels, pool=labels.pool.take(indices), result=labels.result[indices])
