"""Architectures with everything that calibrations ask of them, features too, computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from zerolm.architecture import Architecture, Floats, Ints
from zerolm.calibration.alpha import parts
from zerolm.calibration.dictionary import entry_values
from zerolm.io.brief import Brief, brief
from zerolm.scores import ScoreBatch, make_score

MAX_CHOICES: Final = 256
SHAPE_FEATURES: Final = (
    *("depth", "width", "params", "body_params", "geo", "stable_rank", "spectral_capacity"),
    *("attention", "ffn", "capacity_attention", "capacity_ffn", "rank_ffn", "embedding"),
)
"""The columns of ``shape_features``."""
UNLIKELY: Final = 0.01
"""Probability below which an agreement of size and result is not taken for chance."""


def shape_features(batch: ScoreBatch) -> Floats:
    """Return logarithms of 13 sizes of n architectures, (n, 13), in the order of ``SHAPE_FEATURES``."""
    shapes, n = batch.shapes, len(batch.depths)
    owner = np.repeat(np.arange(n), batch.depths)

    def total(terms: Floats) -> Floats:
        return np.asarray(np.bincount(owner, weights=terms, minlength=n), np.float64)

    sizes = {name: make_score(name).of_many(batch) for name in SHAPE_FEATURES[:7]}
    sides = np.minimum(shapes.rows // shapes.parts, shapes.cols) * shapes.parts
    sizes["attention"] = total((shapes.weights * shapes.attention).sum(axis=1))
    sizes["ffn"] = total((shapes.weights * shapes.ffn).sum(axis=1))
    sizes["capacity_attention"], sizes["capacity_ffn"] = parts(batch)
    sizes["rank_ffn"] = total((sides * shapes.ffn).sum(axis=1))
    sizes["embedding"] = np.array([a.ends.embedding for a in batch.architectures], np.float64) + 1.0
    return np.log(np.maximum([sizes[name] for name in SHAPE_FEATURES], 1e-300)).T


def choice_columns(choices: Mapping[str, Any]) -> dict[str, float]:
    """The choices of one architecture as numbers.

    A number is itself; a list gives its mean over layers, and its slope over depth (``@slope``, relative
    to the mean) as a second column; texts become shares of layers (``operation_type=SA``).
    """
    values_by_column: dict[str, float] = {}
    for name, value in choices.items():
        items = value if isinstance(value, list | tuple) else [value]
        series: dict[str, list[float]] = {}
        for i, item in enumerate(items):
            fields = item if isinstance(item, Mapping) else {"": item}
            for field, leaf in fields.items():
                key = f"{name}.{field}" if field else name
                if isinstance(leaf, str):
                    key, leaf = f"{key}={leaf}", 1.0
                elif not isinstance(leaf, int | float):
                    continue
                series.setdefault(key, [0.0] * len(items))[i] = float(leaf)
        for key, values in series.items():
            mean = sum(values) / len(values)
            values_by_column[key] = float(np.sign(mean) * np.log1p(abs(mean)))
            if len(values) > 1 and mean:
                place = np.linspace(-0.5, 0.5, len(values))
                values_by_column[f"{key}@slope"] = float(place @ np.array(values)) / (len(values) * mean)
    return values_by_column


@dataclass(frozen=True)
class ChoiceColumns:
    """The columns of choices that a predictor was fitted with: those that vary over its labels."""

    means: tuple[str, ...]
    slopes: tuple[str, ...]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, float]]) -> ChoiceColumns:
        names = dict.fromkeys(name for row in rows for name in row)
        varied = [name for name in names if len({row.get(name, 0.0) for row in rows}) > 1][:MAX_CHOICES]
        return cls(
            tuple(name for name in varied if not name.endswith("@slope")),
            tuple(name for name in varied if name.endswith("@slope")),
        )


def columns(rows: Sequence[Mapping[str, float]], names: Sequence[str]) -> Floats:
    """(n, len(names)): the named columns of choices, 0 where an architecture lacks one."""
    return np.array([[row.get(name, 0.0) for name in names] for row in rows], np.float64).reshape(
        len(rows), len(names)
    )


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
